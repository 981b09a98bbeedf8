"""What the screens look like. After a wanted change: `pytest --snapshot-update`, and look at it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from gputop.telemetry.snapshot import DeviceState, Source
from gputop.ui.app import GputopApp
from tests.streams import PreparedStream, inventory, lost, no_driver, process, readings, sample
from tests.ui.pilots import settle

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from tests.sessions import PreparedSession

SIZES = [(80, 24), (120, 40), (200, 60)]


def with_history(devices: int, samples: int = 90) -> list[Any]:
    """A stream that has run for a while."""
    records: list[Any] = [inventory(devices)]
    for tick in range(samples):
        made = tuple(
            readings(n, gpu_utilization_percent=(tick * (n + 2) * 3) % 101) for n in range(devices)
        )
        records.append(dataclasses.replace(sample(devices), devices=made))
    return records


def ready(*keys: str) -> Any:
    async def run_before(pilot: Pilot[None]) -> None:
        await settle(pilot)
        for key in keys:
            await pilot.press(key)
        await settle(pilot)

    return run_before


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("devices", [1, 2, 4, 8, 16])
def test_monitor(snap_compare: Any, devices: int, size: tuple[int, int]) -> None:
    app = GputopApp(PreparedStream(*with_history(devices)))
    assert snap_compare(app, terminal_size=size, run_before=ready())


@pytest.mark.parametrize("size", SIZES[:2], ids=lambda s: f"{s[0]}x{s[1]}")
def test_faults(snap_compare: Any, size: tuple[int, int]) -> None:
    devices = (
        readings(0),
        lost(1),
        lost(2, DeviceState.NOT_RESPONDING),
        lost(3, DeviceState.NEEDS_RESET),
    )
    unseen = process(77, 0, user=None, command=None, memory_used_bytes=None)
    made = dataclasses.replace(sample(4, [unseen, process(78, 0)]), devices=devices)
    stream = PreparedStream(inventory(4), made)
    assert snap_compare(GputopApp(stream), terminal_size=size, run_before=ready())


@pytest.mark.parametrize("size", SIZES[:2], ids=lambda s: f"{s[0]}x{s[1]}")
def test_no_driver(snap_compare: Any, size: tuple[int, int]) -> None:
    app = GputopApp(PreparedStream(no_driver(), sample()))
    assert snap_compare(app, terminal_size=size, run_before=ready())


def test_simulated(snap_compare: Any) -> None:
    simulated = dataclasses.replace(inventory(2), source=Source.SIMULATED)
    app = GputopApp(PreparedStream(simulated, sample(2)))
    assert snap_compare(app, terminal_size=(80, 24), run_before=ready())


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
def test_benchmark_before_a_run(snap_compare: Any, size: tuple[int, int]) -> None:
    app = GputopApp(PreparedStream(inventory(2), sample(2)))
    assert snap_compare(app, terminal_size=size, run_before=ready("2"))


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
def test_benchmark_after_a_run(
    snap_compare: Any, session: type[PreparedSession], size: tuple[int, int]
) -> None:
    app = GputopApp(PreparedStream(no_driver(), sample()))
    assert snap_compare(app, terminal_size=size, run_before=ready("b"))


def test_the_question(snap_compare: Any) -> None:
    app = GputopApp(PreparedStream(inventory(2), sample(2)))
    assert snap_compare(app, terminal_size=(80, 24), run_before=ready("b"))


def test_help(snap_compare: Any) -> None:
    app = GputopApp(PreparedStream(inventory(2), sample(2)))
    assert snap_compare(app, terminal_size=(80, 24), run_before=ready("question_mark"))
