"""Workarounds for Textual do what they are for."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any, cast

import pytest
from textual.events import Key

from gputop.ui.terminal_background import AnswerFilter, BackgroundAnswered
from gputop.ui.textual_workarounds import SteadyDriver

if TYPE_CHECKING:
    from collections.abc import Callable


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
    answers = AnswerFilter()
    assert answers.feed(f"x{answer}y") == "xy"
    (found,) = answers.take()
    assert isinstance(found, BackgroundAnswered)
    assert found.is_light is light


async def test_at_the_end_of_input_reading_ends() -> None:
    driver = Reading()
    os.close(driver.typed)
    await driver.read_until(lambda d: not d.thread.is_alive())
