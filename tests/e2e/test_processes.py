"""The list of processes by keys and mouse, and what can be done to real ones."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

from tests.driver import FakeDriver, FakeProcess
from tests.e2e.shipped import (
    DOWN,
    END,
    ENTER,
    ESCAPE,
    F5,
    F6,
    F9,
    HOME,
    PAGE_DOWN,
    PAGE_UP,
    SOON,
    TAB,
    UP,
    child,
    children,
    click,
    dashboard,
    device,
    held_by,
    row_of,
    see,
    selected,
)

if TYPE_CHECKING:
    from tests.terminal import Terminal

pytestmark = pytest.mark.driver

NAMES = ("train-alpha", "train-beta", "serve-gamma")
NOBODY = 4_190_000
"""A pid that no process here has: above the highest that Linux gives out by default."""

Children = Mapping[str, subprocess.Popen[bytes]]


@pytest.fixture
def running(driver: FakeDriver) -> Iterator[Children]:
    """Three real processes, on the only device."""
    with children(*NAMES) as processes:
        driver.write(device(0, processes=held_by(processes)))
        yield processes


def order(terminal: Terminal) -> list[str]:
    """The names in the order of their rows."""
    return re.findall("|".join(NAMES), terminal.text)


def listed(driver: FakeDriver, *arguments: str) -> Terminal:
    return dashboard("--interval", "0.25", *arguments, env=driver.environment())


def shown(terminal: Terminal) -> Terminal:
    """When the processes are there, largest first."""
    terminal.wait_for(lambda t: len(order(t)) == 3)
    return terminal


def test_tab_and_arrows_go_to_the_processes_and_back(driver: FakeDriver, running: Children) -> None:
    driver.write(device(0, processes=held_by(running)), device(1))
    with listed(driver) as terminal:
        shown(terminal).send(TAB)
        terminal.send(DOWN)
        terminal.wait_for(lambda t: "train-beta" in selected(t))
        terminal.send("j")
        terminal.wait_for(lambda t: "train-alpha" in selected(t))
        terminal.send(DOWN)
        terminal.send(UP)
        terminal.wait_for(lambda t: "train-beta" in selected(t))
        see(terminal, "▌0 Test 0")
        terminal.send(TAB)
        terminal.send(DOWN)
        terminal.wait_for(lambda t: "▌1 Test 1" in t.text)
        assert "train-beta" in selected(terminal)


def test_selection_follows_the_process_when_rows_move(
    driver: FakeDriver, running: Children
) -> None:
    with listed(driver) as terminal:
        shown(terminal).send("3")
        terminal.send(DOWN)
        terminal.wait_for(lambda t: "train-beta" in selected(t))
        rows = held_by(running)
        driver.change(0, processes=(FakeProcess(rows[0].pid, memory_bytes=9 << 30), *rows[1:]))
        terminal.wait_for(lambda t: order(t)[0] == "train-alpha")
        assert "train-beta" in selected(terminal)


def test_sort_and_reverse(driver: FakeDriver, running: Children) -> None:
    by_memory = ["serve-gamma", "train-beta", "train-alpha"]
    by_pid = [*NAMES]
    with listed(driver) as terminal:
        shown(terminal).send("3")
        in_order(terminal, "GPU▲", by_memory)
        terminal.send(".")
        in_order(terminal, "PID▲", by_pid)
        terminal.send("I")
        in_order(terminal, "PID▼", by_pid[::-1])
        terminal.send(",")
        in_order(terminal, "GPU▲", by_memory)
        terminal.send(F6 * 4)
        in_order(terminal, "GPU MEM▼", by_memory)
        terminal.send("I")
        in_order(terminal, "GPU MEM▲", by_memory[::-1])


def in_order(terminal: Terminal, title: str, names: list[str]) -> None:
    """Waits until the list is sorted by that, and the names are in that order."""
    terminal.wait_for(lambda t: title in t.text and order(t) == names, what=f"{title}: {names}")


def test_a_click_sorts_by_a_title_and_selects_a_row(driver: FakeDriver, running: Children) -> None:
    with listed(driver) as terminal:
        shown(terminal).send("3")
        terminal.wait_for(lambda t: "Test 0" not in t.text)
        click(terminal, *terminal.find("COMMAND"))
        in_order(terminal, "COMMAND▲", sorted(NAMES))
        click(terminal, *terminal.find("COMMAND"))
        in_order(terminal, "COMMAND▼", sorted(NAMES, reverse=True))
        click(terminal, *terminal.find("serve-gamma"))
        terminal.wait_for(lambda t: "serve-gamma" in selected(t))


PARENT = """
import subprocess
with subprocess.Popen(["cat"]) as child:
    print(child.pid, flush=True)
"""


def test_a_tree_of_parents_and_children(driver: FakeDriver) -> None:
    command, pipe = [sys.executable, "-I", "-c", PARENT], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as parent:
        assert parent.stdout is not None
        inner = int(parent.stdout.readline())
        rows = (FakeProcess(inner, memory_bytes=9 << 30), FakeProcess(parent.pid))
        driver.write(device(0, processes=rows))
        with listed(driver) as terminal:
            terminal.wait_for(f" {parent.pid} ")
            assert rows_between(terminal, parent.pid, inner) == -1
            terminal.send("3t")
            terminal.wait_for("COMMAND (tree)")
            terminal.wait_for(lambda t: "└" in row_of(t, f" {inner} "))
            assert rows_between(terminal, parent.pid, inner) == 1
            terminal.send(F5)
            terminal.wait_for(lambda t: "└" not in t.text)
            assert rows_between(terminal, parent.pid, inner) == -1


def rows_between(terminal: Terminal, first: int, second: int) -> int:
    """How many rows further down the second pid is."""
    return terminal.find(f" {second} ")[1] - terminal.find(f" {first} ")[1]


def test_a_filter_typed_in_one_breath(driver: FakeDriver, running: Children) -> None:
    with listed(driver) as terminal:
        shown(terminal).send("/train\r")
        see(terminal, "2 of 3 match", "train-alpha", "train-beta", without=("serve-gamma",))
        # Keys are for the list again, and what was typed stays.
        terminal.send(DOWN)
        terminal.wait_for(lambda t: "train-alpha" in selected(t))
        terminal.send(ESCAPE)
        terminal.wait_for(lambda t: len(order(t)) == 3 and "match" not in t.text)
        terminal.send("3/q\x7fbeta q")
        see(terminal, "0 of 3 match", "3 Processes")
        terminal.send("\x7f\x7f")
        terminal.wait_for("1 of 3 match")
        terminal.send(ESCAPE)
        terminal.wait_for(lambda t: len(order(t)) == 3)


def test_pages_of_many_processes(driver: FakeDriver) -> None:
    rows = tuple(FakeProcess(NOBODY + n, memory_bytes=(500 - n) << 20) for n in range(200))
    driver.write(device(0, processes=rows))
    with listed(driver) as terminal:
        terminal.wait_for("COMMAND")
        terminal.send("3")
        terminal.wait_for("of 200")
        terminal.send(END)
        terminal.wait_for(lambda t: f" {NOBODY + 199} " in selected(t))
        see(terminal, "to 200 of 200")
        terminal.send(PAGE_UP)
        terminal.wait_for(lambda t: f" {NOBODY + 199} " not in selected(t))
        terminal.send(PAGE_DOWN)
        terminal.wait_for(lambda t: f" {NOBODY + 199} " in selected(t))
        terminal.send(HOME)
        terminal.wait_for(lambda t: f" {NOBODY} " in selected(t))


def choose(terminal: Terminal, name: str) -> None:
    """Selects that process, by looking for it."""
    shown(terminal).send(f"3/{name}\r")
    terminal.wait_for(lambda t: name in selected(t))


def test_a_signal_is_sent_after_the_question_and_the_list_follows(
    driver: FakeDriver, running: Children
) -> None:
    victim = running["train-beta"]
    with listed(driver) as terminal:
        choose(terminal, "train-beta")
        terminal.send(F9)
        see(terminal, "Send a signal", f"│ {victim.pid}  ", "holds 2.00 GiB", "asks it to end")
        terminal.send(ENTER)
        see(terminal, f"Send TERM to {victim.pid}", "y sends it")
        terminal.send("n")
        see(terminal, "Enter chooses", without=(f"Send TERM to {victim.pid}",))
        assert victim.poll() is None
        terminal.send(ESCAPE)
        terminal.wait_for(lambda t: "Send a signal" not in t.text)
        assert victim.poll() is None
        terminal.send(f"{F9}{ENTER}")
        see(terminal, f"Send TERM to {victim.pid}", "y sends it")
        terminal.send("y")
        assert victim.wait(SOON) == -signal.SIGTERM
        terminal.wait_for(f"SIGTERM was sent to {victim.pid}")
        driver.change(0, processes=held_by({k: v for k, v in running.items() if v is not victim}))
        terminal.wait_for(lambda t: "train-beta -" not in t.text)
    assert [process.poll() for process in running.values()] == [None, -signal.SIGTERM, None]


def test_another_signal_is_chosen_with_arrows(driver: FakeDriver, running: Children) -> None:
    victim = running["serve-gamma"]
    with listed(driver) as terminal:
        choose(terminal, "serve-gamma")
        terminal.send(f"{F9}{DOWN}{DOWN}{ENTER}")
        see(terminal, f"Send KILL to {victim.pid}", "y sends it")
        terminal.send("y")
        assert victim.wait(SOON) == -signal.SIGKILL


def test_a_process_that_ended_meanwhile_gets_nothing(driver: FakeDriver, running: Children) -> None:
    victim = running["train-alpha"]
    with listed(driver) as terminal:
        choose(terminal, "train-alpha")
        terminal.send(f"{F9}{ENTER}")
        see(terminal, f"Send TERM to {victim.pid}", "y sends it")
        victim.kill()
        victim.wait(SOON)
        terminal.send("y")
        see(terminal, "Not sent", f"Process {victim.pid} got no signal")


def test_readonly_has_no_signals(driver: FakeDriver, running: Children) -> None:
    with listed(driver, "--readonly") as terminal:
        choose(terminal, "train-alpha")
        assert "F9" not in terminal.text
        terminal.send(f"{F9}{ENTER}y")
        # Enter is for what it is for elsewhere, and y for nothing.
        see(terminal, "Enter GPU", without=("Send",))
        terminal.send("?")
        see(terminal, "Main keys", "Sort processes by the next column", without=("Send a signal",))
    assert [process.poll() for process in running.values()] == [None] * 3


def test_the_environment_is_inert_and_secrets_are_masked(driver: FakeDriver) -> None:
    env = {
        "CUDA_VISIBLE_DEVICES": "0,3",
        "HF_TOKEN": "hf_abcdef",
        "TITLE": "a\x1b]0;owned\x07b\x1b[31mc",
    }
    with child("train-alpha", env) as process:
        driver.write(device(0, processes=(FakeProcess(process.pid),)))
        with listed(driver) as terminal:
            terminal.wait_for("train-alpha")
            terminal.send("3e")
            see(
                terminal,
                f"{process.pid} ",
                "Environment  / filter",
                "Parents    python",
                "CUDA_VISIBLE_DEVICES=0,3",
                "TITLE=a␛]0;owned␇b␛[31mc",
                "HF_TOKEN=********",
            )
            terminal.send("v")
            terminal.wait_for("HF_TOKEN=hf_abcdef")
            terminal.send(ESCAPE)
            see(terminal, without=("Environment",))
            assert b"\x1b]0;owned" not in terminal.raw


def test_a_process_of_another_pid_namespace_says_so_and_gets_no_signal(driver: FakeDriver) -> None:
    driver.write(device(0, processes=(FakeProcess(NOBODY),)))
    with listed(driver) as terminal:
        terminal.wait_for("gone, or in another namespace: try --pid=host")
        terminal.send(f"3{F9}")
        see(terminal, f"No signal to {NOBODY}", without=("Send a signal",))
        terminal.send("e")
        see(terminal, f"{NOBODY} ──", "No details: gone, or in another namespace")
