"""What the device field offers and what is chosen of it: one device, all, or some."""

from __future__ import annotations

import pytest

from gputop.bench.plan import target_choice
from gputop.ui.benchmark.device_choice import ALL, CPU, MORE, SOME, DeviceChoice
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
        (2, ["all 2 GPUs", "several …"]),
        (4, ["all 4 GPUs", "several …"]),
    ],
)
def test_all_is_offered_where_there_are_two(gpus: int, several: list[str]) -> None:
    choice = offered(gpus)
    assert labels(choice)[gpus + 1 :] == several
    assert (len(choice.offered) > 1) == (gpus > 0)


def test_one_is_chosen_until_all_are() -> None:
    choice = offered(3)
    assert chosen(choice) == ["0"]
    assert choice.choose(device(2).uuid)
    assert not choice.choose(device(2).uuid), "it is no other one"
    assert chosen(choice) == ["2"]
    assert choice.choose(ALL)
    assert chosen(choice) == ["0", "1", "2"]
    assert choice.choose(CPU)
    assert chosen(choice) == [None]
    assert not choice.choose(MORE)


def test_a_collective_takes_all_and_leaves_the_choice_of_one_as_it_is() -> None:
    choice = offered(2)
    choice.choose(device(1).uuid)
    assert chosen(choice, "collective") == ["0", "1"]
    assert labels(choice, "collective") == ["all 2 GPUs", "several …"]
    assert chosen(choice) == ["1"]


def test_several_are_picked_and_one_of_them_is_a_choice_like_any_other() -> None:
    choice = offered(4)
    choice.choose_several([device(3).uuid, device(1).uuid, CPU, "nobody"])
    assert chosen(choice) == chosen(choice, "collective") == ["3", "1", None]
    assert "GPU 3, 1, CPU" in labels(choice)
    assert choice.key("soak") == SOME
    choice.choose_several([device(2).uuid])
    assert (choice.key("soak"), chosen(choice)) == (device(2).uuid, ["2"])
    choice.choose_several([])
    assert chosen(choice) == ["2"]


def test_who_is_away_is_named_and_refused() -> None:
    choice = offered(3)
    choice.choose_several([device(0).uuid, device(2).uuid])
    choice.offer(target_choice.targets(inventory(1), sample(1)))
    assert "GPU 0, 2 (away)" in labels(choice)
    with pytest.raises(ValueError, match="GPU 2, NVIDIA H100 80GB HBM3 is away"):
        choice.available_targets("soak")
    choice.offer(target_choice.targets(inventory(3), sample(3)))
    assert [target.number for target in choice.available_targets("soak")] == ["0", "2"]


def test_all_stays_chosen_while_they_are_away() -> None:
    choice = offered(2)
    choice.choose(ALL)
    choice.offer((A_CPU,))
    assert "all GPUs (away)" in labels(choice)
    with pytest.raises(ValueError, match="All GPUs are away"):
        choice.available_targets("soak")
    choice.offer(target_choice.targets(inventory(1), sample(1)))
    assert "all GPUs (one is there)" in labels(choice)
    assert [target.number for target in choice.available_targets("soak")] == ["0"]
    choice.offer(target_choice.targets(inventory(2), sample(2)))
    assert [target.number for target in choice.available_targets("soak")] == ["0", "1"]


def test_of_a_divided_gpu_all_are_its_instances() -> None:
    choice = DeviceChoice(A_CPU)
    choice.offer(
        target_choice.targets(divided(), seen()), target_choice.gpus_in_mig_mode(divided())
    )
    choice.choose(ALL)
    assert chosen(choice) == ["0", "3:0", "3:1", "3:3"]
    assert instance(1).uuid in {key for _, key in choice.options("soak")}
    assert WHOLE.uuid not in {key for _, key in choice.options("soak")}
    assert "MIG is on" in choice.why_not(WHOLE.uuid, "It")
