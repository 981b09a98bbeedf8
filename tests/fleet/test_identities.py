"""Who and where a GPU is, by the labels of either exporter."""

from gputop.fleet.identities import Identities, target_of
from tests.prometheus import labels, uuid


def only(*rows: dict[str, str]) -> Identities:
    found = Identities(rows)
    assert len(found.all) == 1, found.all
    return found


def test_labels_of_dcgm_exporter() -> None:
    row = labels(11, cluster="a", DCGM_FI_DRIVER_VERSION="580.95")
    (place,) = only(row).all.values()
    assert (place.key, place.uuid) == (uuid(11), uuid(11))
    assert (place.host, place.index, place.name) == ("node1", "3", "NVIDIA H100 80GB HBM3")
    assert place.labels == {
        "cluster": "a",
        "driver_version": "580.95",
        "instance": "node1:9400",
        "job": "dcgm",
    }
    assert target_of(place.labels) == ("dcgm", "node1:9400")


def test_the_host_of_a_newer_dcgm_exporter() -> None:
    old = labels(11)
    new = {name: value for name, value in old.items() if name != "Hostname"}
    new |= {"hostname": "node1", "instance": "10.0.0.7:9400"}
    (place,) = only(new).all.values()
    assert place.host == "node1"
    assert place.labels == {"instance": "10.0.0.7:9400", "job": "dcgm"}
    assert only(old, new).all.keys() == {uuid(11)}, "while some hosts are not yet updated"


def test_both_exporters_of_one_gpu_are_one() -> None:
    ours = {"uuid": uuid(3), "index": "3", "name": "H100", "host": "n0", "job": "gputop"}
    found = only(labels(3, rack="r1"), ours | {"instance": "n0:9835"})
    (place,) = found.all.values()
    assert (place.host, place.name) == ("n0", "H100")
    assert place.labels["rack"] == "r1"
    assert target_of(place.labels) == ("gputop", "n0:9835")
    assert found.key_of({"UUID": uuid(3)}) == found.key_of({"uuid": uuid(3)}) == uuid(3)


def test_a_mig_instance_is_one_under_either_name() -> None:
    dcgm = labels(3, GPU_I_ID="7", GPU_I_PROFILE="1g.10gb")
    ours = {"uuid": "MIG-x", "parent": uuid(3), "gpu_instance": "7", "mig_index": "0", "index": "3"}
    (place,) = only(dcgm, {**ours, "name": "H100", "host": "node0"}).all.values()
    assert place.key == f"{uuid(3)}/7"
    assert place.index == "3:0"
    assert place.labels["mig_profile"] == "1g.10gb"
    other = {**ours, "uuid": "MIG-y", "compute_instance": "1", "host": "node0"}
    assert set(Identities([labels(3), dcgm, other]).all) == {uuid(3), f"{uuid(3)}/7", "MIG-y"}


def test_one_uuid_under_two_names_of_its_host_is_one_gpu() -> None:
    """A new pod of dcgm-exporter has another hostname, and the series of the old one stay."""
    found = Identities([labels(3), labels(3, Hostname="dcgm-exporter-x7k2p"), {"host": "a"}])
    assert [place.key for place in found.all.values()] == [uuid(3)]


def test_hosts_of_one_name_are_with_clusters_by_their_clusters() -> None:
    rows = [labels(0, cluster="east"), labels(8, Hostname="node0", cluster="west"), labels(1)]
    found = Identities(rows)
    assert [place.host for place in found.all.values()] == ["east/node0", "node0", "west/node0"]
    more = Identities([*rows, labels(2, cluster="east")])
    assert [place.host for place in more.all.values()].count("east/node0") == 2
    fewer = Identities(rows[:1])
    assert [place.host for place in fewer.all.values()] == ["node0"]


def test_the_pod_is_the_one_that_uses_the_gpu() -> None:
    exporter = {"pod": "nvidia-dcgm-exporter-x7k2p", "namespace": "gpu-operator", "container": "e"}
    theirs = {"exported_pod": "train-0", "exported_namespace": "ml", "exported_container": "main"}
    used = labels(0, **exporter, **theirs)
    free = labels(1, **exporter)
    renamed = labels(2, pod="metrics-abcde", namespace="gpu-operator")
    honoured = labels(3, pod="train-1", namespace="ml", job="other")
    found = Identities([used, free, renamed, honoured]).all
    assert found[uuid(0)].labels["pod"] == "train-0"
    assert found[uuid(0)].labels["namespace"] == "ml"
    assert "pod" not in found[uuid(1)].labels
    assert "namespace" not in found[uuid(2)].labels
    assert found[uuid(3)].labels["pod"] == "train-1"


def test_order_and_what_can_be_grouped_by() -> None:
    rows = [labels(n, rack=f"r{n // 16}", zone="z") for n in (80, 7, 16, 8)]
    rows.append({**labels(1, pod="a"), "job": "other"})
    found = Identities(rows)
    places = [(place.host, place.index) for place in found.all.values()]
    assert places == [
        ("node0", "1"),
        ("node0", "7"),
        ("node1", "0"),
        ("node2", "0"),
        ("node10", "0"),
    ]
    assert found.label_names == ("instance", "job", "rack", "zone", "pod")
