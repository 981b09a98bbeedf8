import re

import pytest

from gputop.agent.device import Absence, Device
from gputop.agent.problem import ProblemError
from gputop.agent.selection import Chosen, Selection, parse_ids
from tests.agent.test_visible_devices import ALIKE, M1, M2, A, B, C

ALL: Chosen = {A: None, B: None, C: None}
SILENT = Device(1, "unknown:1", "unknown device", absent={"uuid": Absence.NO_DATA_YET})
HUNG = (ALIKE[0], SILENT, *ALIKE[2:])
"""The devices where GPU 1 does not answer."""


def select(text: str) -> Chosen:
    return Selection(parse_ids(text)).among(ALIKE)


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("0", {A: None}),
        ("2,0", {A: None, C: None}),
        (" 1 , 1", {B: None}),
        ("GPU-aa1", {A: None}),
        ("gpu-BB33,0", {A: None, C: None}),
        ("00000000:2a:00.0", {B: None}),
        ("3A:00.0", {C: None}),
        # An instance comes with its GPU.
        ("MIG-1", {C: {M1}}),
        ("2:0", {C: {M1}}),
        ("MIG-1,2", {C: None}),
    ],
)
def test_gpus_are_chosen_with_their_instances(text: str, chosen: Chosen) -> None:
    assert select(text) == chosen


NO_GPU_3 = "There is no GPU 3: this machine has GPU 0, 1, 2. `gputop status -L` lists the devices"
NO_UUID = "No device has the UUID GPU-77: this machine has GPU 0, 1, 2. `gputop status -L` lists"
NO_ADDRESS = "No GPU has the PCI address 0000:99:00.0: they have 00000000:1A:00.0, 00000000:2A:"
TWO = "GPU-aa is ambiguous: it matches GPU 0 (GPU-aa11), GPU 1 (GPU-aa22). Give more of it"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("3", NO_GPU_3),
        ("0,GPU-77", NO_UUID),
        ("0000:99:00.0", NO_ADDRESS),
        ("2:7", "There is no MIG instance 2:7: this machine has GPU 0, 1, 2. "),
        ("GPU-aa", TWO),
        ("MIG-", "'MIG-' is not a list of GPUs"),
        ("0,,1", "is not a list of GPUs"),
        ("\x1b[2J", "is not a list of GPUs"),
    ],
)
def test_an_id_without_a_device_is_refused(text: str, why: str) -> None:
    with pytest.raises((ProblemError, ValueError), match=f"^.*{re.escape(why)}"):
        select(text)


def test_only_those_that_cuda_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    visible = Selection(only_visible=True)
    assert visible.among(ALIKE) == ALL
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,1")
    assert visible.among(ALIKE) == {B: None, C: None}
    assert Selection(("1", "0"), only_visible=True).among(ALIKE) == {B: None}
    why = "No GPU was chosen: CUDA_VISIBLE_DEVICES=2,1 hides 0. Choose another GPU, or leave out "
    with pytest.raises(ProblemError, match=why):
        Selection(("0",), only_visible=True).among(ALIKE)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-2")
    assert visible.among(ALIKE) == {C: frozenset({M2})}
    assert Selection(("2",), only_visible=True).among(ALIKE) == {C: frozenset({M2})}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    with pytest.raises(ProblemError, match="ends at '7': there is no such device"):
        visible.among(ALIKE)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(ProblemError, match="CUDA_VISIBLE_DEVICES is empty, which hides all GPUs"):
        visible.among(ALIKE)


@pytest.mark.parametrize(
    ("text", "needs"), [("0", False), ("0,1", False), ("GPU-aa11", True), ("2:0", True)]
)
def test_an_index_is_known_before_devices_are_identified(
    monkeypatch: pytest.MonkeyPatch, text: str, needs: bool
) -> None:
    ids = tuple(text.split(","))
    assert Selection(ids).needs_identities is needs
    assert Selection(ids, only_visible=True).needs_identities is needs
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert Selection(ids, only_visible=True).needs_identities


def test_the_message_names_the_gpu_that_does_not_answer() -> None:
    assert Selection(("1",)).among(HUNG) == {"unknown:1": None}
    with pytest.raises(ProblemError) as caught:
        Selection(("2A:00.0",)).among(HUNG)
    assert str(caught.value) == (
        "No GPU has the PCI address 2A:00.0: they have 00000000:1A:00.0, an unknown one, "
        "00000000:3A:00.0, and there is no answer from GPU 1. "
        "A GPU that does not answer can be chosen by its index, such as 1"
    )
