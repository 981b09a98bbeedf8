from collections import defaultdict

from gputop.fleet.identities import Labels, identify, key_of, labels_to_group_by, target_of
from gputop.fleet.model import Gpu
from tests.prometheus import labels, uuid


def identified(*rows: dict[str, str]) -> dict[str, Gpu]:
    by_key: dict[str, list[Labels]] = defaultdict(list)
    for row in rows:
        by_key[key_of(row)].append(row)
    return {gpu.key: gpu for gpu in identify(by_key)}


def test_labels_of_dcgm_exporter() -> None:
    row = labels(11, cluster="a", DCGM_FI_DRIVER_VERSION="580.95")
    (place,) = identified(row).values()
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
    (place,) = identified(new).values()
    assert place.host == "node1"
    assert place.labels == {"instance": "10.0.0.7:9400", "job": "dcgm"}
    assert identified(old, new).keys() == {uuid(11)}, "while some hosts are not yet updated"


def test_both_exporters_of_one_gpu_are_one() -> None:
    ours = {"uuid": uuid(3), "index": "3", "name": "H100", "host": "n0", "job": "gputop"}
    (place,) = identified(labels(3, rack="r1"), ours | {"instance": "n0:9835"}).values()
    assert (place.host, place.name) == ("n0", "H100")
    assert place.labels["rack"] == "r1"
    assert target_of(place.labels) == ("gputop", "n0:9835")


def test_a_mig_instance_has_its_number_on_its_gpu() -> None:
    dcgm = labels(3, GPU_I_ID="7", GPU_I_PROFILE="1g.10gb")
    ours = {"uuid": "MIG-x", "parent": uuid(3), "mig_index": "0", "index": "3", "host": "node0"}
    own, theirs = identified(dcgm, ours).values()
    assert (own.key, own.index) == ("MIG-x", "3:0")
    assert (theirs.key, theirs.index) == (f"{uuid(3)}/7", "3:7")
    assert theirs.labels["mig_profile"] == "1g.10gb"
    assert own.device == theirs.device


def test_one_uuid_under_two_names_of_its_host_is_one_gpu() -> None:
    """A new pod of dcgm-exporter has another hostname, and the series of the old one stay."""
    assert [*identified(labels(3), labels(3, Hostname="dcgm-exporter-x7k2p"))] == [uuid(3)]


def test_hosts_of_one_name_are_with_clusters_by_their_clusters() -> None:
    rows = [labels(0, cluster="east"), labels(8, Hostname="node0", cluster="west"), labels(1)]
    found = identified(*rows)
    assert [place.host for place in found.values()] == ["east/node0", "node0", "west/node0"]
    more = identified(*rows, labels(2, cluster="east"))
    assert [place.host for place in more.values()].count("east/node0") == 2
    fewer = identified(rows[0])
    assert [place.host for place in fewer.values()] == ["node0"]


def test_the_pod_is_the_one_that_uses_the_gpu() -> None:
    exporter = {"pod": "nvidia-dcgm-exporter-x7k2p", "namespace": "gpu-operator", "container": "e"}
    theirs = {"exported_pod": "train-0", "exported_namespace": "ml", "exported_container": "main"}
    used = labels(0, **exporter, **theirs)
    free = labels(1, **exporter)
    renamed = labels(2, pod="metrics-abcde", namespace="gpu-operator")
    honoured = labels(3, pod="train-1", namespace="ml", job="other")
    found = identified(used, free, renamed, honoured)
    assert found[uuid(0)].labels["pod"] == "train-0"
    assert found[uuid(0)].labels["namespace"] == "ml"
    assert "pod" not in found[uuid(1)].labels
    assert "namespace" not in found[uuid(2)].labels
    assert found[uuid(3)].labels["pod"] == "train-1"


def test_three_of_many_values_are_shown_and_long_ones_are_cut() -> None:
    (place,) = identified(*(labels(0, pod=f"p{n}", zone="z" * 300) for n in range(5))).values()
    assert place.labels["pod"] == "p0, p1, p2, …"
    assert place.labels["zone"] == "z" * 200
    (place,) = identified(labels(0, Hostname="h" * 300, modelName="m" * 300)).values()
    assert (place.host, place.name) == ("h" * 200, "m" * 200)
    assert place.place == "h" * 60


def test_order_and_what_can_be_grouped_by() -> None:
    rows = [labels(n, rack=f"r{n // 16}", zone="z") for n in (80, 7, 16, 8)]
    rows.append({**labels(1, pod="a"), "job": "other"})
    found = identified(*rows)
    places = [place.place for place in found.values()]
    assert places == ["node0:1", "node0:7", "node1:0", "node2:0", "node10:0"]
    assert labels_to_group_by([*found.values()]) == ("instance", "job", "rack", "zone", "pod")
