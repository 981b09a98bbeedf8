"""Faults of the terminal: suspended, stopped, of any size."""

import random
import re
import shlex
import signal
from pathlib import Path

from tests.faults.scenario import WELL, Scenario, Stage
from tests.terminal import ALTERNATE_SCREEN

LATER, LATER_YET = 77, 23
WRONG_AGES = "No data for|NOT RESPONDING|sampler stopped|AWAY for"


def in_shell(folder: Path, command: list[str]) -> list[str]:
    """In a shell with job control: once it is stopped, f is as `fg`.

    Other keys are the terminal's answers to a dashboard that did not live to read them.
    """
    line = (
        f"{shlex.join(command)}; s=$?; "
        'while [ -n "$(jobs)" ]; do read -rsn1 key; '
        'if [ "$key" = f ]; then fg; s=$?; fi; done; exit $s'
    )
    return ["bash", "--norc", "--noprofile", "-i", "-c", line]


def suspend(stage: Stage) -> None:
    stage.terminal.send("\x1a")
    stage.see("Stopped")
    assert ALTERNATE_SCREEN not in stage.terminal.modes
    assert not stage.terminal.modes & {1000, 1003, 1004, 1006, 2004}
    stage.driver.change(1, gpu_utilization_percent=LATER)


def stop(stage: Stage) -> None:
    stage.terminal.kill(signal.SIGSTOP)
    stage.driver.change(1, gpu_utilization_percent=LATER)
    stage.terminal.collect(2.0)


def go_on(stage: Stage) -> None:
    """Continue it; of what came meanwhile nothing is shown that is not so any more."""
    stage.driver.change(1, gpu_utilization_percent=LATER_YET)
    stage.terminal.collect(2 * stage.interval)
    frames: list[str] = []
    stage.terminal.on_read = lambda terminal: frames.append(terminal.text)
    stage.terminal.kill(signal.SIGCONT)
    stage.see(f"{LATER_YET} %")
    wrong = [frame for frame in frames if re.search(WRONG_AGES, frame)]
    assert not wrong, wrong[0]


def resize_often(stage: Stage) -> None:
    """As small as a terminal can be, and then a hundred sizes, as of a window that is dragged."""
    for columns, rows in ((200, 1), (1, 60), (19, 4), (1, 1)):
        stage.terminal.resize(columns, rows)
        stage.terminal.collect(stage.interval)
    dice = random.Random(7)  # noqa: S311 - no secret
    for _ in range(100):
        stage.terminal.resize(dice.randint(1, 250), dice.randint(1, 80))
        stage.terminal.collect(0.01)
    stage.terminal.resize(120, 40)


SCENARIOS = (
    Scenario(
        name="suspended by Ctrl+Z, and resumed",
        within=in_shell,
        fault=suspend,
        says=("Stopped",),
        keys=(),
        alive=None,
        mend=lambda stage: stage.terminal.send("f"),
        then=("0 Test 0", "2 Test 2", f"{LATER} %", "Quit"),
        then_silent=("Stopped",),
    ),
    Scenario(
        name="stopped by kill -STOP for a while, and continued",
        fault=stop,
        keys=(),
        alive=None,
        mend=go_on,
        then=(*WELL[:3], f"{LATER_YET} %"),
    ),
    Scenario(
        name="one cell by one, and a hundred sizes in a second",
        fault=resize_often,
        says=(*WELL, "Quit"),
    ),
)
