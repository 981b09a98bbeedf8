"""The screen on the terminal is the one that Textual draws, whatever was sent before."""

from __future__ import annotations

import asyncio
import contextlib
import os
import termios
import threading
from typing import TYPE_CHECKING, Any, cast

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.app import App
from textual.events import Key, Paste, Resize
from textual.geometry import Size
from textual.messages import InBandWindowResize
from textual.widgets import Label

from gputop import console
from gputop.console import COLUMNS, ROWS
from gputop.ui import terminal
from gputop.ui.terminal import CANCEL, ScreenCells, TerminalDriver
from gputop.ui.terminal_input import PASTE_END, PASTE_START, BackgroundAnswered, InputFilter
from gputop.ui.textual_workarounds import SteadyDriver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from textual.app import ComposeResult


WIDTH, HEIGHT = 30, 4
FAMILY = "👩\u200d👩\u200d👧"


def at(x: int, y: int, text: str, codes: str = "") -> str:
    """An update as Textual writes it."""
    styled = f"\x1b[{codes}m{text}\x1b[0m" if codes else text
    return f"\x1b[{y + 1};{x + 1}H{styled}"


def cells_of(width: int = WIDTH, height: int = HEIGHT) -> ScreenCells:
    cells = ScreenCells()
    cells.resize(width, height)
    cells.difference()
    return cells


def screen_of(*outputs: str, width: int = WIDTH, height: int = HEIGHT) -> list[object]:
    screen = pyte.Screen(width, height)
    stream = pyte.Stream(screen)
    for output in outputs:
        stream.feed(output)
    return [screen.buffer[y][x] for y in range(height) for x in range(width)]


def test_only_changed_cells_are_sent() -> None:
    cells = cells_of()
    cells.apply(at(0, 0, "power 600 W") + at(0, 1, "busy 99 %"))
    cells.difference()
    cells.apply(at(0, 0, "power 605 W") + at(0, 1, "busy 99 %"))
    assert cells.difference() == "\x1b[1;9H5"
    assert cells.difference() == ""


def test_changes_in_a_row_with_few_cells_between_them_are_sent_together() -> None:
    cells = cells_of()
    cells.apply(at(0, 0, "a....b.....c"))
    assert cells.difference() == "\x1b[1;1Ha....b.....c"
    cells.apply(at(0, 0, "A....B.....C"))
    assert cells.difference() == "\x1b[1;1HA....B\x1b[5CC"


def test_a_place_behind_characters_of_uncertain_width_is_sent_as_it_is() -> None:
    cells = cells_of()
    cells.apply(at(0, 0, "a.....b.....c"))
    cells.difference()
    cells.apply(at(0, 0, "━.....B.....C"))
    assert cells.difference() == "\x1b[1;1H━\x1b[1;7HB\x1b[5CC"


def test_a_style_is_sent_once_for_its_run() -> None:
    cells = cells_of()
    cells.apply(at(0, 0, "ab", "1") + at(0, 1, "c", "1") + at(1, 1, "d"))
    assert cells.difference() == "\x1b[1;1H\x1b[0;1mab\x1b[2;1Hc\x1b[md"


def test_a_character_of_two_cells_and_one_with_joined_parts_keep_the_others_in_place() -> None:
    cells = cells_of()
    cells.apply(at(0, 0, f"漢{FAMILY}e\u0301x"))
    cells.difference()
    cells.apply(at(0, 0, f"漢{FAMILY}e\u0301y"))
    assert cells.difference() == "\x1b[1;6Hy"


def test_what_does_not_fit_is_cut() -> None:
    cells = cells_of()
    cells.apply(at(WIDTH - 2, 0, "abcd") + at(WIDTH + 5, 1, "e") + at(0, HEIGHT, "f"))
    assert cells.difference() == f"\x1b[1;{WIDTH - 1}Hab"


def test_another_size_is_painted_anew_with_what_was_there() -> None:
    cells = cells_of()
    cells.apply(at(0, 0, "title") + at(0, HEIGHT - 1, "keys"))
    cells.difference()
    cells.resize(WIDTH - 10, HEIGHT)
    assert cells.difference() == f"\x1b[m\x1b[2J\x1b[1;1Htitle\x1b[{HEIGHT};1Hkeys"


texts = st.text(st.sampled_from("ab ─⣿漢"), min_size=1, max_size=8)
styles = st.sampled_from(["", "1", "38;5;75", "38;5;75;48;5;234"])
updates = st.builds(at, st.sampled_from([0, 16]), st.integers(0, HEIGHT - 1), texts, styles)


@given(st.lists(st.lists(updates, max_size=4), min_size=1, max_size=6))
def test_the_differences_make_the_screen_of_all_updates(rounds: list[list[str]]) -> None:
    """As of two widgets side by side: Textual never overwrites half of a wide character."""
    cells, sent = cells_of(), []
    for many in rounds:
        for each in many:
            blanks = each.partition("H")[0] + "H" + " " * 14
            cells.apply(blanks + each)
        sent.append(cells.difference())
    anew = ScreenCells()
    anew.resize(WIDTH, HEIGHT)
    anew._rows = cells._rows
    assert screen_of(*sent) == screen_of(anew.difference())


class Labels(App[None]):
    """Something to draw."""

    def compose(self) -> ComposeResult:
        yield Label("[bold red]hot[/] 漢字 [on blue]cold[/]", id="first")
        yield Label("second")


async def test_textual_s_updates_are_understood() -> None:
    """Both kinds: of the whole screen, and of what changed."""
    app = Labels()
    async with app.run_test(size=(WIDTH, HEIGHT)) as pilot:
        cells, sent = cells_of(), []
        compositor = app.screen._compositor
        for text in ("first", "f[bold]i[/]rst", "漢 1", "2"):
            app.query_one("#first", Label).update(text)
            await pilot.pause()
            whole = compositor.render_full_update().render_segments(app.console)
            cells.apply(whole)
            sent.append(cells.difference())
            assert screen_of(*sent) == screen_of(whole)


# The driver.


class Idle:
    """Stand-in for the app, with the attributes that the driver uses."""

    size = Size(WIDTH, HEIGHT)

    def __init__(self) -> None:
        self.received: list[object] = []

    async def _post_message(self, message: object) -> None:
        self.received.append(message)


class Drawn:
    """A driver on a pty of which the test reads when it wants to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.outside, self.inside = os.openpty()
        self.modes = termios.tcgetattr(self.inside)
        os.set_blocking(self.outside, False)
        name = os.ttyname(self.inside)
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY
        monkeypatch.setattr(terminal, "open_terminal", lambda: os.open(name, flags))
        self.app = Idle()
        self.driver = TerminalDriver(cast("Any", self.app))
        self.driver.fileno = self.inside
        self.driver.start_application_mode()

    def draw(self, text: str) -> None:
        self.driver.write(at(0, 0, text))
        self.driver.flush()

    def fill(self) -> None:
        """Draw until the terminal takes no more."""
        while not self.driver._blocked:
            self.draw("x" * WIDTH)
            self.driver.repaint()

    async def read_until(self, text: bytes) -> bytes:
        data = b""
        async with asyncio.timeout(60):
            while text not in data:
                with contextlib.suppress(BlockingIOError):
                    data += os.read(self.outside, 65536)
                await asyncio.sleep(0.01)
        return data

    def leave(self) -> None:
        self.driver.stop_application_mode()
        self.driver.close()


@pytest.fixture
async def drawn(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Drawn]:
    made = Drawn(monkeypatch)
    yield made
    made.leave()
    for descriptor in (made.outside, made.inside):
        with contextlib.suppress(OSError):
            os.close(descriptor)


async def test_what_is_drawn_is_sent_at_once(drawn: Drawn) -> None:
    drawn.draw("first")
    assert b"\x1b[2J" in await drawn.read_until(b"first")
    drawn.draw("first")
    drawn.draw("FIRST")
    assert await drawn.read_until(b"FIRST") == b"\x1b[1;1HFIRST"


async def test_the_bell_does_not_wait_for_the_next_frame(drawn: Drawn) -> None:
    drawn.driver.write("\x07")
    await drawn.read_until(b"\x07")


async def test_a_stalled_terminal_gets_the_newest_screen_and_no_backlog(drawn: Drawn) -> None:
    drawn.fill()
    before = len(drawn.driver._pending)
    for number in range(1000):
        drawn.draw(f"number {number}")
    assert len(drawn.driver._pending) == before
    read = await drawn.read_until(b"number 999")
    assert b"number 998" not in read


async def test_a_stalled_terminal_is_restored(drawn: Drawn) -> None:
    drawn.fill()
    drawn.leave()
    read = await drawn.read_until(b"\x1b[?1049l")
    assert CANCEL in read
    assert read.rstrip().endswith(b"\x1b[?25h\x1b[?1004l")
    assert termios.tcgetattr(drawn.inside) == drawn.modes


async def test_a_terminal_that_is_gone_holds_up_nothing(drawn: Drawn) -> None:
    drawn.fill()
    os.close(drawn.outside)
    await asyncio.sleep(0)
    drawn.draw("nobody")
    drawn.leave()
    assert drawn.driver._pending == b""


async def test_after_another_start_everything_is_sent_again(drawn: Drawn) -> None:
    drawn.draw("first")
    drawn.driver.suspend_application_mode()
    assert termios.tcgetattr(drawn.inside) == drawn.modes
    await drawn.read_until(b"\x1b[?1049l")
    drawn.driver.resume_application_mode()
    assert b"\x1b[?1049h" in await drawn.read_until(b"first")


async def test_continuing_without_a_stop_starts_no_second_input_thread(drawn: Drawn) -> None:
    drawn.draw("first")
    before = drawn.driver._key_thread
    drawn.driver.resume_application_mode()
    assert before is not None
    assert not before.is_alive()
    assert drawn.driver._key_thread is not None
    assert drawn.driver._key_thread.is_alive()
    await drawn.read_until(b"first")


async def test_sizes_come_from_the_system_alone_and_are_limited(
    drawn: Drawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = Size(9999, 9999)
    drawn.driver.process_message(Resize(size, size))
    drawn.driver.process_message(InBandWindowResize(True, True))
    drawn.driver.process_message(Paste("received"))
    async with asyncio.timeout(60):
        while not any(isinstance(each, Paste) for each in drawn.app.received):  # noqa: ASYNC110 - by another thread
            await asyncio.sleep(0.01)
    assert not any(isinstance(each, InBandWindowResize) for each in drawn.app.received)
    assert size not in [each.size for each in drawn.app.received if isinstance(each, Resize)]
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size(size))
    assert drawn.driver._get_terminal_size() == (COLUMNS, ROWS)


@pytest.mark.parametrize(("named", "controlled"), [(True, True), (False, True), (False, False)])
def test_the_terminal_is_opened_again_where_that_is_permitted(
    named: bool, controlled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `su`, or in a container whose terminal is of the host."""
    outside, inside = os.openpty()
    name = os.ttyname(inside)
    monkeypatch.setattr(os, "ttyname", lambda _: name if named else "/nonexistent")
    monkeypatch.setattr(os, "ctermid", lambda: name if controlled else "/nonexistent")
    monkeypatch.setattr(os, "dup", lambda _: inside)
    opened = console.open_terminal()
    assert os.get_blocking(opened) == (not named and not controlled)
    os.write(opened, b"here")
    assert os.read(outside, 4) == b"here"
    for descriptor in {opened, inside, outside}:
        os.close(descriptor)


# Workarounds for Textual do what they are for.


class Reading(SteadyDriver):
    """A driver that reads a pipe, and keeps the messages."""

    def __init__(self) -> None:
        super().__init__(cast("Any", None))
        self.fileno, self.typed = os.pipe()
        self.received: list[object] = []
        self.thread = threading.Thread(target=self.run_input_thread, daemon=True)
        self.thread.start()

    def process_message(self, message: object) -> None:
        self.received.append(message)

    async def read_until(self, found: Callable[[Reading], bool]) -> None:
        async with asyncio.timeout(60):
            while not found(self):  # noqa: ASYNC110 - by another thread
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("malformed", ["\x1b[99999999999u", "\x1b[97;5;99999999999u"])
async def test_reading_goes_on_after_a_malformed_key(malformed: str) -> None:
    driver = Reading()
    os.write(driver.typed, malformed.encode())

    def types(driver: Reading) -> bool:
        """Type until a key arrives: what is read together with the malformed key is lost."""
        os.write(driver.typed, b"a")
        return any(isinstance(each, Key) and each.key == "a" for each in driver.received)

    await driver.read_until(types)
    os.close(driver.typed)
    await driver.read_until(lambda d: not d.thread.is_alive())


async def test_an_answer_about_the_background_is_no_key() -> None:
    driver = Reading()
    for piece in ("a", "\x1b]11;rgb:ffff/", "ff00/eeee\x1b\\", "q"):
        before = len(driver.received)
        os.write(driver.typed, piece.encode())
        if piece != "\x1b]11;rgb:ffff/":  # the start of an answer is held back
            await driver.read_until(lambda d, before=before: len(d.received) > before)  # type: ignore[misc]
    key, answer, last = driver.received
    assert isinstance(key, Key)
    assert isinstance(answer, BackgroundAnswered)
    assert answer.is_light
    assert isinstance(last, Key)
    os.close(driver.typed)


@pytest.mark.parametrize(
    ("answer", "light"),
    [
        ("\x1b]11;rgb:ffff/ffff/ffff\x07", True),
        ("\x1b]11;rgb:00/00/00\x1b\\", False),
        ("\x1b]11;rgba:f/f/d/f\x1b\\", True),
        ("\x1b]11;rgb:2828/2c2c/3434\x1b\\", False),
    ],
)
def test_backgrounds(answer: str, light: bool) -> None:
    answers = InputFilter()
    assert answers.feed(f"x{answer}y") == "xy"
    (found,) = answers.take_answers()
    assert isinstance(found, BackgroundAnswered)
    assert found.is_light is light


async def test_at_the_end_of_input_reading_ends() -> None:
    driver = Reading()
    os.close(driver.typed)
    await driver.read_until(lambda d: not d.thread.is_alive())


# Escapes are taken out of pasted text, however it comes.


pieces = st.lists(st.integers(1, 12), max_size=40)


def filtered(text: str, lengths: list[int]) -> str:
    """Return the filtered text, which comes in pieces of these lengths."""
    pastes, found = InputFilter(), []
    for length in [*lengths, len(text)]:
        found.append(pastes.feed(text[:length]))
        text = text[length:]
    return "".join(found)


@given(pieces)
def test_a_paste_has_no_escapes_however_it_is_cut(lengths: list[int]) -> None:
    inside = "3\x1b[20~\ry \x1b\x1b[B\x1b[20 y"
    pasted = PASTE_START + inside + PASTE_END
    plain = PASTE_START + inside.replace("\x1b", "") + PASTE_END
    assert filtered(pasted, [8, *lengths]) == plain
    assert filtered(f"\x1b[A{pasted}\x1b[B", [12, *lengths]) == f"\x1b[A{plain}\x1b[B"


@given(pieces)
def test_other_input_passes_unchanged(lengths: list[int]) -> None:
    keys = "q\x1b[A\x1b[20~\x1b[<0;5;5M\x1bOP é"
    assert filtered(keys, lengths) == keys


def test_an_escape_alone_is_not_held_back() -> None:
    assert InputFilter().feed("\x1b") == "\x1b"
