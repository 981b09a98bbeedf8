"""CUDA_VISIBLE_DEVICES, as CUDA reads it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.schema.device import Device
from gputop.sources.visible_devices import (
    BY_BUS,
    ORDER,
    VARIABLE,
    Seen,
    chosen,
    in_bus_order,
    parse_ids,
    seen,
)

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
ALL = (A, B, C, M1, M2)
REPEATED = "which leaves CUDA nothing"
NONE_SUCH = "there is no such device"


def left(devices: Sequence[Device], value: str | None, order: str | None) -> Seen:
    given = {VARIABLE: value, ORDER: order}
    return seen(devices, {name: each for name, each in given.items() if each is not None})


@pytest.mark.parametrize(
    ("value", "uuids", "note"),
    [
        (None, ALL, ""),
        ("0,1,2", ALL, ""),
        ("1", (B,), ""),
        (" 1 ,+0", (A, B), ""),
        ("1gpu2,0ampere", (A, B), ""),
        ("2", (C, M1, M2), ""),
        ("", (), ""),
        ("-1", (), NONE_SUCH),
        ("1,-1,0", (B,), NONE_SUCH),
        ("0,3,1", (A,), NONE_SUCH),
        ("0,,1", (A,), NONE_SUCH),
        ("x,0", (), NONE_SUCH),
        ("none", (), NONE_SUCH),
        ("99999999999999", (), NONE_SUCH),
        ("٠", (), NONE_SUCH),
        ("0,1,0", (), REPEATED),
        (A, (A,), ""),
        ("GPU-bb", (C, M1, M2), ""),
        ("GPU-aa2,GPU-aa1", (A, B), ""),
        ("GPU-aa", (), NONE_SUCH),  # it could be either
        ("GPU-aa1,GPU-zz,GPU-aa2", (A,), NONE_SUCH),
        ("GPU-aa1,GPU-aa11", (), REPEATED),
        ("GPU-aa1,1", (A,), NONE_SUCH),  # numbers after UUIDs are none
        ("0,GPU-aa2", (A,), NONE_SUCH),
        ("gpu-aa11", (), NONE_SUCH),
        ("MIG-1", (M1,), ""),
        ("MIG-2,MIG-1", (M1, M2), ""),
        ("MIG-GPU-bb33/8/0", (M2,), ""),
        ("MIG-GPU-bb33/8/0,MIG-2", (), REPEATED),
        ("MIG-", (), NONE_SUCH),
        ("MIG-1,GPU-aa11", (M1,), NONE_SUCH),
    ],
)
def test_what_is_visible(value: str | None, uuids: tuple[str, ...], note: str) -> None:
    found = left(ALIKE, value, None)
    assert found.uuids == {*uuids}
    assert (found.note or "").endswith(note)
    assert bool(found.note) is bool(note)


def test_numbers_are_those_of_the_bus() -> None:
    assert [gpu.uuid for gpu in in_bus_order(MIXED)] == [B, C, A]
    assert left(MIXED, "0", BY_BUS).uuids == {B}
    assert left(MIXED, "2", BY_BUS).uuids == {A}


def test_without_a_bus_it_is_the_drivers_order() -> None:
    unknown = (*MIXED[:2], Device(2, C, "H100"))
    assert [gpu.uuid for gpu in in_bus_order(unknown)] == [A, B, C]


@pytest.mark.parametrize("order", [None, "FASTEST_FIRST", ""])
def test_numbers_on_a_mixed_machine_are_refused(order: str | None) -> None:
    """CUDA says only which is the first, and not even how it is found."""
    wanted = (
        r"^CUDA_VISIBLE_DEVICES=0,1 is ambiguous: .* this machine has H100, T4\. "
        r"Set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name devices by their UUIDs$"
    )
    with pytest.raises(ValueError, match=wanted):
        left(MIXED, "0,1", order)


@pytest.mark.parametrize("value", [None, "", "-1", "0,1,2", "2,1,0", A, f"{C},{B}"])
def test_what_is_the_same_in_any_order_is_not_refused(value: str | None) -> None:
    assert left(MIXED, value, None) == left(MIXED, value, BY_BUS)


@given(st.text("0123,-+ GPUMIab/x", max_size=12), st.sampled_from([None, BY_BUS]))
def test_any_value_leaves_some_of_the_devices(value: str, order: str | None) -> None:
    assert left(ALIKE, value, order).uuids <= {*ALL}


def test_a_foreign_entry_is_inert() -> None:
    assert "\x1b" not in (left(ALIKE, "0,\x1b[31m", None).note or "")


GPUS = ALIKE[:3]


@pytest.mark.parametrize(
    ("text", "uuids"),
    [
        ("0", {A}),
        ("2,0", {A, C}),
        (" 1 , 1", {B}),
        ("GPU-aa1", {A}),
        ("gpu-BB33,0", {A, C}),
        ("00000000:2a:00.0", {B}),
        ("3A:00.0", {C}),
    ],
)
def test_gpus_are_chosen_as_nvidia_smi_does(text: str, uuids: set[str]) -> None:
    assert chosen(GPUS, parse_ids(text), only_visible=False) == uuids


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("3", "none of its 3 GPUs have the id 3"),
        ("0,GPU-77", "none of its 3 GPUs have the id GPU-77"),
        ("GPU-aa", "2 of its 3 GPUs have the id GPU-aa"),
        ("00.0", "'00.0' names no GPUs"),
        ("", "'' names no GPUs"),
        ("0,,1", "names no GPUs"),
        ("cuda:0", "names no GPUs"),
        ("\x1b[2J", "names no GPUs"),
    ],
)
def test_an_id_without_a_gpu_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        chosen(GPUS, parse_ids(text), only_visible=False)


def test_only_those_that_cuda_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(GPUS, (), only_visible=True) == {A, B, C}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,1")
    assert chosen(GPUS, (), only_visible=True) == {B, C}
    assert chosen(GPUS, ("1", "0"), only_visible=True) == {B}
    with pytest.raises(ValueError, match="CUDA_VISIBLE_DEVICES hides the GPUs with the id 0"):
        chosen(GPUS, ("0",), only_visible=True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    with pytest.raises(ValueError, match="ends at '7': there is no such device"):
        chosen(GPUS, (), only_visible=True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(ValueError, match="leaves none of them visible"):
        chosen(GPUS, (), only_visible=True)
