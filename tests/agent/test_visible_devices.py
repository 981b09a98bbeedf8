from collections.abc import Sequence
from typing import Any

import pytest

from gputop.agent.device import Absence, Device
from gputop.agent.visible_devices import BY_BUS, ORDER, VARIABLE, Seen, in_bus_order, seen

A, B, C = "GPU-aa11", "GPU-aa22", "GPU-bb33"
M1, M2 = "MIG-1", "MIG-2"
ALIKE = (
    Device(0, A, "H100", pci_bus_id="00000000:1A:00.0"),
    Device(1, B, "H100", pci_bus_id="00000000:2A:00.0"),
    Device(2, C, "H100", pci_bus_id="00000000:3A:00.0"),
    Device(2, M1, "H100 MIG", C, 0, 7, 0),
    Device(2, M2, "H100 MIG", C, 1, 8, 0),
)
MIXED = (
    Device(0, A, "T4", pci_bus_id="00000000:9A:00.0"),
    Device(1, B, "H100", pci_bus_id="00000000:1a:00.0"),
    Device(2, C, "H100", pci_bus_id="00000000:1B:00.0"),
)


def left(devices: Sequence[Device], value: str | None, order: str | None) -> Seen:
    given = {VARIABLE: value, ORDER: order}
    return seen(devices, {name: each for name, each in given.items() if each is not None})


NUMBERS = (None, "1", "2", "", "-1", "1,-1,0", "0,3,1", "٠", "0,1,0")
# A part of a UUID may fit two of them; numbers after UUIDs are none.
UUIDS = (A, "GPU-bb", "GPU-aa2,GPU-aa1", "GPU-aa", "GPU-aa1,1", "0,GPU-aa2", "gpu-aa11")


def test_what_is_visible(snapshot: Any) -> None:
    told = ""
    for value in (*NUMBERS, *UUIDS, "MIG-1", "MIG-2,MIG-1"):
        found = left(ALIKE, value, None)
        told += f"{value}: {sorted(found.uuids)} {found.note or ''}\n"
    assert told == snapshot


def test_numbers_are_those_of_the_bus() -> None:
    assert [gpu.uuid for gpu in in_bus_order(MIXED)] == [B, C, A]
    assert left(MIXED, "0", BY_BUS).uuids == {B}
    assert left(MIXED, "2", BY_BUS).uuids == {A}


@pytest.mark.parametrize("order", [None, "FASTEST_FIRST", ""])
def test_numbers_on_a_mixed_machine_are_refused(order: str | None) -> None:
    wanted = (
        r"^CUDA_VISIBLE_DEVICES=0,1 is ambiguous: .* this machine has H100, T4\. "
        r"Set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name devices by their UUIDs$"
    )
    with pytest.raises(ValueError, match=wanted):
        left(MIXED, "0,1", order)


@pytest.mark.parametrize("value", [None, "", "-1", "0,1,2", A, f"{C},{B}"])
def test_what_is_the_same_in_any_order_is_not_refused(value: str | None) -> None:
    assert left(MIXED, value, None) == left(MIXED, value, BY_BUS)


def test_a_gpu_that_does_not_answer_makes_later_numbers_ambiguous() -> None:
    """CUDA may not count it. Numbers before it stay what they are."""
    silent = Device(1, "unknown:1", "unknown device", absent={"uuid": Absence.LOST})
    devices = (ALIKE[0], silent, ALIKE[2])
    assert left(devices, "0", None).uuids == {A}
    for value in ("1", "2", "2,0"):
        with pytest.raises(ValueError, match=r"is ambiguous: GPU 1 does not answer, and CUDA may"):
            left(devices, value, BY_BUS)
    assert left(devices, C, None).uuids == {C}
    assert left(devices, "GPU-9", None).note == (
        "CUDA_VISIBLE_DEVICES ends at 'GPU-9': no GPU that answers matches it"
    )
