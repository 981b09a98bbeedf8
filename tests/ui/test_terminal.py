import asyncio
import contextlib
import os
import termios
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.events import Key, Paste, Resize
from textual.geometry import Size
from textual.messages import InBandWindowResize

from gputop import console
from gputop.console import COLUMNS, ROWS
from gputop.ui import terminal
from gputop.ui.terminal import CANCEL, ScreenCells, TerminalDriver
from gputop.ui.terminal_input import PASTE_END, PASTE_START, BackgroundAnswered, InputFilter

WIDTH, HEIGHT = 30, 4
FAMILY = "👩\u200d👩\u200d👧"


def at(x: int, y: int, text: str, codes: str = "") -> str:
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


@pytest.mark.parametrize(
    ("before", "now", "sent"),
    [
        (
            at(0, 0, "power 600 W") + at(0, 1, "busy 99 %"),
            at(0, 0, "power 605 W") + at(0, 1, "busy 99 %"),
            "\x1b[1;9H5",
        ),
        (at(0, 0, "a....b.....c"), at(0, 0, "A....B.....C"), "\x1b[1;1HA....B\x1b[5CC"),
        (at(0, 0, "a.....b.....c"), at(0, 0, "━.....B.....C"), "\x1b[1;1H━\x1b[1;7HB\x1b[5CC"),
        (at(0, 0, f"漢{FAMILY}e\u0301x"), at(0, 0, f"漢{FAMILY}e\u0301y"), "\x1b[1;6Hy"),
        (
            "",
            at(0, 0, "ab", "1") + at(0, 1, "c", "1") + at(1, 1, "d"),
            "\x1b[1;1H\x1b[0;1mab\x1b[2;1Hc\x1b[md",
        ),
        (
            "",
            at(WIDTH - 2, 0, "abcd") + at(WIDTH + 5, 1, "e") + at(0, HEIGHT, "f"),
            f"\x1b[1;{WIDTH - 1}Hab",
        ),
    ],
    ids=["changed", "close together", "uncertain width", "joined", "style", "too much"],
)
def test_the_cells_that_changed_are_sent(before: str, now: str, sent: str) -> None:
    cells = cells_of()
    cells.apply(before)
    cells.difference()
    cells.apply(now)
    assert (cells.difference(), cells.difference()) == (sent, "")


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


# The driver.


class Idle:
    size = Size(WIDTH, HEIGHT)

    def __init__(self) -> None:
        self.received: list[object] = []

    async def _post_message(self, message: object) -> None:
        self.received.append(message)


class Drawn:
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
        while not self.driver._blocked:
            self.draw("x" * WIDTH)
            self.driver.repaint()

    async def read_until(self, text: bytes) -> bytes:
        data = b""

        def found() -> bool:
            nonlocal data
            with contextlib.suppress(BlockingIOError):
                data += os.read(self.outside, 65536)
            return text in data

        await self.until(found)
        return data

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():  # noqa: ASYNC110 - by another thread
                await asyncio.sleep(0.01)

    def received(self, kind: type[object]) -> bool:
        return any(isinstance(each, kind) for each in self.app.received)

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
    drawn.driver.write("\x07")  # without a frame
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
    thread = drawn.driver._key_thread
    assert thread is not None
    await drawn.until(lambda: not thread.is_alive())
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
    before = drawn.driver._key_thread
    drawn.driver.resume_application_mode()  # without a stop: no second thread reads
    assert before is not None
    assert not before.is_alive()
    assert drawn.driver._key_thread is not None
    assert drawn.driver._key_thread.is_alive()
    await drawn.read_until(b"first")


async def test_reading_goes_on_after_a_malformed_key(drawn: Drawn) -> None:
    os.write(drawn.outside, b"\x1b[99999999999u")

    def types() -> bool:
        """Type until a key arrives: what is read together with the malformed key is lost."""
        os.write(drawn.outside, b"a")
        return drawn.received(Key)

    await drawn.until(types)
    os.write(drawn.outside, b"\x1b]11;rgb:ffff/ffff/eeee\x1b\\")
    await drawn.until(lambda: drawn.received(BackgroundAnswered))


async def test_sizes_come_from_the_system_alone_and_are_limited(
    drawn: Drawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = Size(9999, 9999)
    for message in (Resize(size, size), InBandWindowResize(True, True), Paste("received")):
        drawn.driver.process_message(message)
    await drawn.until(lambda: drawn.received(Paste))
    assert not drawn.received(InBandWindowResize)
    assert size not in [each.size for each in drawn.app.received if isinstance(each, Resize)]
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size(size))
    assert drawn.driver._get_terminal_size() == (COLUMNS, ROWS)


@pytest.mark.parametrize(("named", "controlled"), [(True, True), (False, True), (False, False)])
def test_the_terminal_is_opened_again_where_that_is_permitted(
    named: bool, controlled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.parametrize(
    ("answer", "light"),
    [
        ("\x1b]11;rgb:ffff/ffff/ffff\x07", True),
        ("\x1b]11;rgb:00/00/00\x1b\\", False),
        ("\x1b]11;rgba:f/f/d/f\x1b\\", True),
    ],
)
def test_backgrounds(answer: str, light: bool) -> None:
    answers = InputFilter()
    assert answers.feed(f"x{answer[:9]}") == "x", "the start of an answer is held back"
    assert answers.feed(f"{answer[9:]}y") == "y"
    (found,) = answers.take_answers()
    assert isinstance(found, BackgroundAnswered)
    assert found.is_light is light


# Escapes are taken out of pasted text, however it comes.


pieces = st.lists(st.integers(1, 12), max_size=40)


def filtered(text: str, lengths: list[int]) -> str:
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
