"""What the device field offers and what is chosen of it: one device, or all."""

from __future__ import annotations

import pytest

from gputop.bench.plan import target_choice
from gputop.ui.benchmark.device_choice import ALL, CPU, DeviceChoice
from tests.bench.machines import WHOLE, divided, instance, seen
from tests.bench.workers import CPU as A_CPU
from tests.streams import device, inventory, sample


def offered(gpus: int) -> DeviceChoice:
    choice = DeviceChoice(A_CPU)
    choice.offer(target_choice.targets(inventory(gpus), sample(gpus)))
    return choice


def labels(choice: DeviceChoice, kind: str = "soak") -> list[str]:
    return [label for label, _ in choice.options(kind)]


def chosen(choice: DeviceChoice, kind: str = "soak") -> list[str | None]:
    return [target.number for target in choice.targets(kind)]


@pytest.mark.parametrize(
    ("gpus", "several"),
    [
        (0, []),
        (1, []),
        (2, ["all 2 GPUs"]),
        (4, ["all 4 GPUs"]),
    ],
)
def test_all_is_offered_where_there_are_two(gpus: int, several: list[str]) -> None:
    choice = offered(gpus)
    assert labels(choice)[gpus + 1 :] == several
    assert (len(choice.offered) > 1) == (gpus > 0)


def test_one_is_chosen_until_all_are() -> None:
    choice = offered(3)
    assert chosen(choice) == ["0"]
    choice.choose(device(2).uuid)
    assert chosen(choice) == ["2"]
    choice.choose(ALL)
    assert chosen(choice) == ["0", "1", "2"]
    choice.choose(CPU)
    assert chosen(choice) == [None]


def test_a_collective_takes_all_and_leaves_the_choice_of_one_as_it_is() -> None:
    choice = offered(2)
    choice.choose(device(1).uuid)
    assert chosen(choice, "collective") == ["0", "1"]
    assert labels(choice, "collective") == ["all 2 GPUs"]
    assert chosen(choice) == ["1"]


@pytest.mark.parametrize("key", [device(1).uuid, ALL])
def test_what_is_gone_is_refused_and_never_replaced(key: str) -> None:
    choice = offered(2)
    choice.choose(key)
    choice.offer(target_choice.targets(inventory(1), sample(1)))
    assert chosen(choice) == []
    assert choice.options("soak")[-1] == ("choose a device", key)
    with pytest.raises(ValueError, match="The device is gone: choose another one"):
        choice.available_targets("soak")
    choice.offer(target_choice.targets(inventory(2), sample(2)))
    assert "choose a device" not in labels(choice)
    assert [target.number for target in choice.available_targets("soak")][-1:] == ["1"]


def test_of_a_divided_gpu_all_are_its_instances() -> None:
    choice = DeviceChoice(A_CPU)
    choice.offer(
        target_choice.targets(divided(), seen()), target_choice.gpus_in_mig_mode(divided())
    )
    choice.choose(ALL)
    assert chosen(choice) == ["0", "3:0", "3:1", "3:3"]
    assert instance(1).uuid in {key for _, key in choice.options("soak")}
    assert WHOLE.uuid not in {key for _, key in choice.options("soak")}
    assert "MIG is on" in choice.why_not(WHOLE.uuid)
