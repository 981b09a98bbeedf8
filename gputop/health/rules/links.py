"""Rules about the way to the host: is the PCIe link full, is it as fast as it could be."""

from __future__ import annotations

from gputop.health import thresholds as t
from gputop.health.alerts import Severity
from gputop.health.device_view import Look, NoEvidence, finite, now
from gputop.health.findings import Evidence, Said
from gputop.text import size

BUSY = "gpu_utilization_percent"
GENERATION, WIDTH = "pcie_generation", "pcie_width"
TRAFFIC = {"pcie_rx_bytes_per_second": "receives", "pcie_tx_bytes_per_second": "sends"}
LANE_BYTES = {1: 250e6, 2: 500e6, 3: 984.6e6, 4: 1969e6, 5: 3938e6, 6: 7563e6}
"""A second and lane, by generation, after the line code and before headers (PCI-SIG)."""


def link_bytes(generation: float, width: float) -> float | None:
    """What a link can carry in each direction, in bytes a second; None for an unknown one."""
    lane = LANE_BYTES.get(int(generation))
    return lane * width if lane is not None and width > 0 else None


def pcie_bound(look: Look) -> Said | None:
    """As much goes over the link as it can carry."""
    rates = {name: look.known(name, t.SHORT_SECONDS) for name in TRAFFIC}
    known = {name: rate for name, rate in rates.items() if rate is not None}
    if not known:
        raise NoEvidence(next(iter(TRAFFIC)))
    name, rate = max(known.items(), key=lambda item: item[1])
    most = link_bytes(look.reading(GENERATION), look.reading(WIDTH))
    if most is None:
        raise NoEvidence(GENERATION)
    if not look.passes(t.PCIE_SHARE, 100 * rate / most):
        return None
    # A link slows down when it is idle: it was full of what it could carry when it was not.
    generation = max(finite(look.values(GENERATION, t.SHORT_SECONDS)))
    most = link_bytes(generation, max(finite(look.values(WIDTH, t.SHORT_SECONDS)))) or most
    share = 100 * rate / most
    if not look.passes(t.PCIE_SHARE, share):
        return None
    evidence = [Evidence("share of the link", name, share, "%", look.span(t.SHORT_SECONDS))]
    for each, verb in TRAFFIC.items():
        evidence += look.means(verb, each, t.SHORT_SECONDS)
    sentence = f"Its PCIe link is nearly full: it {TRAFFIC[name]} {size(rate)}/s of {size(most)}/s"
    return Said(
        Severity.WARNING,
        sentence,
        [*evidence, *look.means("busy", BUSY)],
        "Keep data on the device, copy less and in smaller types, overlap copies with work "
        "(pinned memory, non_blocking)",
    )


def link_degraded(look: Look) -> Said | None:
    """Under load the link is narrower or slower than device and slot can do together."""
    generation_max, width_max = look.reading("pcie_generation_max"), look.reading("pcie_width_max")
    generation = max(finite(look.values(GENERATION)))
    width = max(finite(look.values(WIDTH)))
    if generation >= generation_max and width >= width_max:
        return None
    if not look.passes(t.LINK_LOAD, look.mean(look.activity)):
        return None
    state = look.sample.performance_state
    if not look.held and state is not None and state > t.FAST_STATES:
        return None
    is_, could = f"gen {generation:.0f} ×{width:.0f}", f"gen {generation_max:.0f} ×{width_max:.0f}"
    evidence = [now("generation, of its maximum", GENERATION, generation)]
    evidence.append(now("lanes, of their maximum", WIDTH, width))
    ours, full = link_bytes(generation, width), link_bytes(generation_max, width_max)
    if ours and full:
        evidence.append(now("it can carry", "pcie_rx_bytes_per_second", ours))
        evidence.append(now("it could carry", "pcie_rx_bytes_per_second", full))
    return Said(
        Severity.WARNING,
        f"Its PCIe link runs at {is_} of {could} under load",
        [*evidence, *look.means("busy", look.activity)],
        "Look at how the card or its riser sits, at the slot and at the BIOS; after an error a "
        "reboot may bring it back",
    )
