"""Checks of each GPU, and of its use by CUDA and torch.

A GPU that does not answer has only a finding about its state.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.agent.device import Absence, Device, DeviceSample, DeviceState
from gputop.agent.linux.driver_files import same_address
from gputop.agent.snapshot import Event
from gputop.agent.visible_devices import VARIABLE, seen
from gputop.bench.run.worker_launch import GET_TORCH
from gputop.bench.worker.backends import runs_on
from gputop.health.conditions import (
    PROGRAM_XIDS,
    event_text,
    fault_of,
    gravest_xid,
)
from gputop.health.doctor.checks import (
    Check,
    CheckGroup,
    note,
    ok,
    problem,
    warning,
)
from gputop.health.judge import RULES, NoFinding, judge_snapshot
from gputop.health.rules.hardware import link_text, lowered_limit
from gputop.health.thresholds import LOG_SECONDS
from gputop.schema.advice import shared_command
from gputop.schema.values import absence_text, enable_ecc, value_text
from gputop.text import duration, visible

if TYPE_CHECKING:
    from gputop.health.doctor.doctor_facts import DoctorFacts, TorchFacts
    from gputop.health.findings import Finding


DeviceCheck = Callable[[Device, DeviceSample], "Finding"]


def state(facts: DoctorFacts) -> Iterator[Finding]:
    """Check that each GPU answers."""
    for device in facts.gpus:
        readings = facts.sample.device(device.uuid)
        fault = fault_of(device, readings) if readings else None
        if fault is not None:
            yield problem(fault.what, fault.remedy, device)
        elif readings is None or readings.age_seconds is None:
            yield warning(
                "it has not answered yet", "Run `gputop doctor` again", device
            )
        else:
            yield ok("answers", device)


def xids(facts: DoctorFacts) -> Iterator[Finding]:
    """Check for Xid errors in the kernel log and among the events since the start."""
    log = facts.kernel_log
    for device in facts.gpus:
        found = [
            replace(event, time=0.0)
            for event in facts.sample.events
            if event.kind == "xid" and event.device_uuid == device.uuid
        ]
        for each in log.xids:
            is_its = same_address(each.address, device.pci_bus_id or "")
            if is_its and each.age_seconds < LOG_SECONDS:
                found.append(
                    Event(-each.age_seconds, device.uuid, "xid", each.code)
                )
        if found:
            yield _worst(device, found, facts.sample.device(device.uuid))
        elif log.refused is None:
            yield ok("none in the kernel's log of the last day", device)
    if log.refused is not None and facts.gpus:
        yield note(
            f"earlier ones are unknown: /dev/kmsg, {log.refused}",
            "Run `sudo gputop doctor`, or `sudo dmesg | grep Xid`",
        )


def _worst(
    device: Device, found: Sequence[Event], readings: DeviceSample | None
) -> Finding:
    """Return the finding about the gravest Xid. Times are in seconds before now."""
    event = gravest_xid(found)
    fault, age = event_text(event, device, readings), -event.time
    ago = "just now" if age < 1 else f"{duration(age)} ago"
    text = f"{fault.what}, {ago}"
    if len(found) > 1:
        text = f"{text}, and {len(found) - 1} more"
    made = note if event.code in PROGRAM_XIDS else problem
    return made(text, fault.remedy, device)


def _answering(
    facts: DoctorFacts,
) -> Iterator[tuple[Device, DeviceSample]]:
    for device in facts.gpus:
        readings = facts.sample.device(device.uuid)
        if readings is not None and readings.state is DeviceState.OK:
            yield device, readings


def _absent(name: str, reason: Absence | None, device: Device) -> Finding:
    """Return the finding for a missing reading, which is fine if the device does not support it."""
    reason = reason or Absence.NOT_SUPPORTED
    text = absence_text(name, reason, device)
    if reason is Absence.NOT_SUPPORTED:
        return ok(text, device)
    return note(f"not judged: {text}", device=device)


def _of_each(
    needs: Sequence[str], check: DeviceCheck
) -> Callable[[DoctorFacts], Iterator[Finding]]:
    """Return a check of the devices that answer, or a finding about a missing reading."""

    def judge(facts: DoctorFacts) -> Iterator[Finding]:
        for device, readings in _answering(facts):
            for name in needs:
                value = getattr(readings, name, getattr(device, name, None))
                if value is None:
                    absent = {**device.absent, **readings.absent}
                    yield _absent(name, absent.get(name), device)
                    break
            else:
                yield check(device, readings)

    return judge


def _fine(device: Device, _: DeviceSample) -> Finding:
    return ok("no problem", device)


def _by_rule(
    name: str, check: DeviceCheck = _fine
) -> Callable[[DoctorFacts], Iterator[Finding]]:
    """Return the verdicts of a rule, and a check of the devices where it finds nothing."""

    def judge(facts: DoctorFacts) -> Iterator[Finding]:
        verdicts = {}
        for verdict in judge_snapshot(facts.inventory, facts.sample).verdicts:
            if verdict.rule == name:
                verdicts[verdict.device_uuid] = verdict
        for device, readings in _answering(facts):
            verdict = verdicts[device.uuid]
            if not isinstance(verdict, NoFinding):
                title = verdict.line
                yield replace(
                    verdict, title=title, label="", since=None, evidence=()
                )
            elif name == "ecc" and device.ecc_enabled is False:
                text = "disabled: memory errors are not detected"
                yield note(text, enable_ecc(device), device)
            elif verdict.missing:
                yield _absent(verdict.missing, verdict.absence, device)
            else:
                yield check(device, readings)

    return judge


def _no_ecc_errors(device: Device, readings: DeviceSample) -> Finding:
    past = readings.ecc_uncorrected_lifetime
    if past:
        text = f"none now, {past} uncorrected in its life"
        return note(text, "Watch it", device)
    return ok("no problem", device)


def _link_not_slow(device: Device, readings: DeviceSample) -> Finding:
    """Return a finding for a link at its maximum, or for one that cannot be judged without load."""
    if device.memory_is_shared:
        return ok("none: it is on the host's chip", device)
    now = readings.pcie_generation or 0, readings.pcie_width or 0
    most = device.pcie_generation_max or 0, device.pcie_width_max or 0
    text = link_text(*now)
    if now[0] >= most[0] and now[1] >= most[1]:
        return ok(f"{text}, the maximum", device)
    return note(
        f"not judged: little load, at {text} of {link_text(*most)}",
        "Run `gputop doctor` again while it computes",
        device,
    )


def power_limit(device: Device, readings: DeviceSample) -> Finding:
    """Check for a lowered limit, even if it does not reduce the clocks now."""
    limit = readings.power_limit_watts or 0
    default = device.power_limit_default_watts or 0
    lowered = lowered_limit(limit, default, device)
    if lowered is not None:
        return warning(*lowered, device)
    return ok(f"{limit:.0f} W, its default is {default:.0f} W", device)


def persistence(device: Device, _: DeviceSample) -> Finding:
    """Check that the driver keeps the device initialized while no program uses it."""
    if device.persistence_mode == "enabled":
        return ok("on", device)
    return note(
        "off: the first program each time waits for the device to start",
        f"{shared_command('-pm 1', device)}, or run nvidia-persistenced for all GPUs",
        device,
    )


def compute_mode(device: Device, _: DeviceSample) -> Finding:
    """Check that programs may compute on the device."""
    mode = device.compute_mode or ""
    remedy = f"{shared_command('-c 0', device)} lets all programs compute"
    if mode == "prohibited":
        return problem(
            "prohibited: no program may compute on it", remedy, device
        )
    if mode != "default":
        return note(
            f"{value_text('compute_mode', mode)}: one program at a time",
            remedy,
            device,
        )
    return ok("default", device)


OWN_CHECKS = {"ecc": _no_ecc_errors, "link_degraded": _link_not_slow}
"""Checks of the devices where these rules find nothing."""
BY_RULES = [
    Check(
        rule.name,
        CheckGroup.DEVICES,
        rule.title,
        _by_rule(rule.name, OWN_CHECKS.get(rule.name, _fine)),
    )
    for rule in RULES
    if not rule.needs_history and rule.name != "xid"
]
"""Checks by the rules that need one snapshot. Xids are also read from the kernel log."""
_LIMITS = ("power_limit_watts", "power_limit_default_watts")
OF_EACH = (
    ("power_limit", "power limit", _LIMITS, power_limit),
    ("persistence", "persistence", ("persistence_mode",), persistence),
    ("compute_mode", "compute mode", ("compute_mode",), compute_mode),
)
"""Name, title, needed readings, and the check of a device without a rule."""

DEVICE_CHECKS = (
    Check("state", CheckGroup.DEVICES, "state", state),
    Check("xid", CheckGroup.DEVICES, "Xid errors", xids),
    *BY_RULES,
    *(
        Check(name, CheckGroup.DEVICES, title, _of_each(needs, check))
        for name, title, needs, check in OF_EACH
    ),
)

_BUILD = (
    "Install a CUDA build of torch there, or name another Python with --python"
)
_BUILDS = f"{GET_TORCH} lists the builds"


def torch(facts: DoctorFacts) -> Iterator[Finding]:
    """Check the torch that stress tests use."""
    chosen, answer, missing = (
        facts.found.chosen,
        facts.torch,
        facts.found.problem,
    )
    if missing is not None:
        yield warning(
            f"{missing.what}: stress tests cannot run", missing.remedy
        )
    if chosen is None or answer is None:
        return
    where = visible(f"{chosen.path} ({chosen.origin})", 300)
    if answer.failure is not None:
        why = visible(answer.failure, 200).rstrip(".")
        yield problem(
            f"cannot be imported by {where}: {why}", "Reinstall it there"
        )
    else:
        yield ok(f"{visible(answer.version or '', 40)} of {where}")


def build(facts: DoctorFacts) -> Iterator[Finding]:
    """Check that torch has CUDA support. Otherwise it computes on the CPU."""
    said = _imported(facts)
    if said is None:
        return
    if said.cuda_version:
        yield ok(f"built for CUDA {visible(said.cuda_version, 20)}")
    elif facts.gpus:
        yield problem(
            f"torch {visible(said.version or '', 40)} is built without CUDA",
            _BUILD,
        )
    else:
        yield ok("built without CUDA, and there is no GPU")


def cuda(facts: DoctorFacts) -> Iterator[Finding]:
    """Check that torch can use the driver."""
    said = _imported(facts)
    if (
        said is None
        or not said.cuda_version
        or not facts.gpus
        or _hides_all(facts)
    ):
        return
    newest = facts.inventory.cuda_version
    takes = f"the driver takes CUDA up to {visible(newest or '?', 20)}"
    if said.fault is None and said.device_count:
        yield ok(f"{said.device_count} of {len(facts.gpus)} GPUs; {takes}")
    elif newest and _major(said.cuda_version) > _major(newest):
        yield problem(
            f"built for CUDA {visible(said.cuda_version, 20)}, {takes}",
            f"Update the driver, or install a build for CUDA {_major(newest)}; {_BUILDS}",
        )
    else:
        why = visible(said.fault or "it sees no device", 200).rstrip(".")
        yield problem(
            f"torch cannot use the GPUs: {why}",
            f"Run nvidia-smi; {takes}",
        )


def architecture(facts: DoctorFacts) -> Iterator[Finding]:
    """Check that this build of torch has code for each device."""
    said = _imported(facts)
    if said is None or not said.architectures:
        return
    for device in facts.gpus:
        capability = device.compute_capability
        if capability is None:
            continue
        major, _, minor = capability.partition(".")
        if runs_on(list(said.architectures), (int(major), int(minor))):
            yield ok(
                f"it has code for compute capability {capability}", device
            )
        else:
            built = visible(" ".join(said.architectures), 200)
            yield problem(
                f"it has no code for compute capability {capability}, only for {built}",
                f"Install a build that has; {_BUILDS}",
                device,
            )


def selection(facts: DoctorFacts) -> Iterator[Finding]:
    """Check which GPUs are in CUDA_VISIBLE_DEVICES."""
    value = facts.environment.get(VARIABLE)
    if value is None:
        yield ok("not set: CUDA programs see every GPU")
        return
    shown = f"{VARIABLE}={visible(value, 200)}"
    if not facts.gpus:
        yield note(f"{shown}, and there is no GPU")
        return
    try:
        allowed = seen(facts.inventory.devices, facts.environment)
    except ValueError as error:
        why, _, remedy = str(error).rpartition(". ")
        yield warning(why, remedy)
        return
    gpus = sum(gpu.uuid in allowed.uuids for gpu in facts.gpus)
    if not allowed.uuids:
        text = f"{shown} hides every GPU"
        if allowed.note:
            text = f"{text}: it {allowed.note.removeprefix(VARIABLE).strip()}"
        yield warning(text, "Unset it, or name a GPU in it")
    elif allowed.note is not None:
        yield warning(
            f"{allowed.note}, and what follows is ignored",
            "Name GPUs by index or by UUID, as `gputop status --json` has them",
        )
    elif not gpus:
        yield ok(f"{shown}: a MIG instance")
    else:
        yield ok(f"{shown}: {gpus} of {len(facts.gpus)} GPUs")


def _imported(facts: DoctorFacts) -> TorchFacts | None:
    if facts.torch is None or facts.torch.failure is not None:
        return None
    return facts.torch


def _hides_all(facts: DoctorFacts) -> bool:
    with contextlib.suppress(ValueError):
        return not seen(facts.inventory.devices, facts.environment).uuids
    return False


def _major(version: str) -> int:
    digits = version.partition(".")[0]
    return int(digits) if digits.isdecimal() else 0


TORCH_CHECKS = (
    Check("torch", CheckGroup.TORCH, "torch", torch),
    Check("torch_build", CheckGroup.TORCH, "build", build),
    Check("torch_cuda", CheckGroup.TORCH, "CUDA", cuda),
    Check("architecture", CheckGroup.TORCH, "architecture", architecture),
    Check("visible_devices", CheckGroup.TORCH, "visible GPUs", selection),
)
