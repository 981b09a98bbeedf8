"""The page of a simulated fleet: dcgm-exporter's names and labels."""

from prometheus_client.parser import text_string_to_metric_families as parse

from tests.demo_fleet.exporter import Simulator, page
from tests.demo_fleet.site import STRANGE_POD, WIDE_POD

FLEET = Simulator(64, started=1_800_000_000.0)
LABELS = {
    *("gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION"),
    *("container", "namespace", "pod", "cluster", "rack", "simulated"),
}


def test_metrics_and_labels_are_those_of_dcgm_exporter() -> None:
    text = b"".join(page(FLEET, FLEET.hosts, FLEET.started + 1)).decode()
    samples = {each.name: each.samples for each in parse(text)}
    assert {name[:8] for name in samples} == {"DCGM_FI_"}
    power = samples["DCGM_FI_DEV_POWER_USAGE"]
    assert all(set(sample.labels) == LABELS for sample in power)
    assert {STRANGE_POD, WIDE_POD} <= {sample.labels["pod"] for sample in power}
    xids = samples["DCGM_FI_DEV_XID_ERRORS"]
    assert len(xids) == 64
    assert (79, "79", "GPU has fallen off the bus") in {
        (s.value, s.labels["err_code"], s.labels["err_msg"]) for s in xids
    }
