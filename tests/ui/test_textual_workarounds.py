"""Workarounds for Textual do what they are for, and nothing where Textual has changed."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.app import App
from textual.events import Key, Paste, Resize
from textual.geometry import Size

from gputop.ui.terminal_background import AnswerFilter, BackgroundAnswered
from gputop.ui.textual_workarounds import (
    PASTE_END,
    PASTE_START,
    PasteFilter,
    SteadyDriver,
    apply_dropped_resize,
)
from tests.ui.pilots import until

if TYPE_CHECKING:
    from collections.abc import Callable


# Resizes.


class Never:
    """A timer that Textual skips."""

    def stop(self) -> None:
        """Do nothing."""


async def test_a_dropped_resize_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    app, size = App[None](), Size(100, 30)
    async with app.run_test(size=(80, 24)) as pilot:
        monkeypatch.setattr(app, "set_timer", lambda *_: Never())
        app.post_message(Resize(size, size))
        await until(pilot, lambda: app.size == size)
        await pilot.pause(0)
        apply_dropped_resize(app)  # Textual 8.0 applies it itself
        await until(pilot, lambda: app.screen._compositor.size == size)


async def test_without_those_attributes_nothing_is_done() -> None:
    apply_dropped_resize(cast("Any", object()))


# Input.

pieces = st.lists(st.integers(1, 12), max_size=40)


def filtered(text: str, lengths: list[int]) -> str:
    """Return the filtered text, which comes in pieces of these lengths."""
    pastes, found = PasteFilter(), []
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
    assert PasteFilter().feed("\x1b") == "\x1b"


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


async def test_a_paste_is_one_message() -> None:
    driver = Reading()
    os.write(driver.typed, f"{PASTE_START}b \x1b{'y' * 40}{PASTE_END}".encode())
    os.write(driver.typed, b"q")
    await driver.read_until(lambda d: len(d.received) == 2)
    paste, key = driver.received
    assert isinstance(paste, Paste)
    assert paste.text == f"b {'y' * 40}"
    assert isinstance(key, Key)
    os.close(driver.typed)


async def test_an_answer_about_the_background_is_no_key() -> None:
    driver = Reading()
    for piece in ("a", "\x1b]11;rgb:ffff/", "ff00/eeee\x1b\\", "\x1b[20", "0~b\x1b[201~q"):
        before = len(driver.received)
        os.write(driver.typed, piece.encode())
        if piece not in ("\x1b]11;rgb:ffff/", "\x1b[20"):  # halves of marks are held back
            await driver.read_until(lambda d, before=before: len(d.received) > before)  # type: ignore[misc]
    await driver.read_until(lambda d: len(d.received) == 4)
    key, answer, paste, last = driver.received
    assert isinstance(key, Key)
    assert isinstance(answer, BackgroundAnswered)
    assert answer.is_light
    assert isinstance(paste, Paste)
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
    answers = AnswerFilter()
    assert answers.feed(f"x{answer}y") == "xy"
    (found,) = answers.found
    assert isinstance(found, BackgroundAnswered)
    assert found.is_light is light


async def test_at_the_end_of_input_reading_ends() -> None:
    driver = Reading()
    os.close(driver.typed)
    await driver.read_until(lambda d: not d.thread.is_alive())
