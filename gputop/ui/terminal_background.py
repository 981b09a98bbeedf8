"""The terminal's background: the query, and the terminal's answer in the input."""

from __future__ import annotations

import re

from textual.message import Message

QUESTION = "\x1b]11;?\x1b\\"
ANSWER = re.compile(
    r"\x1b\]11;rgba?:([\da-f]+)/([\da-f]+)/([\da-f]+)[^\x07\x1b]*(?:\x07|\x1b\\)",
    re.IGNORECASE,
)
BEGUN_ANSWER = re.compile(r"\x1b\]1[^\x07\x1b]{0,40}\x1b?\Z")


class BackgroundAnswered(Message):
    """The terminal has reported its background."""

    def __init__(self, *, is_light: bool) -> None:
        super().__init__()
        self.is_light = is_light
        """True if dark text is legible on it."""


class AnswerFilter:
    """Removes the answer from the input, where its letters would be keys."""

    def __init__(self) -> None:
        self._held = ""
        self._found: list[Message] = []

    def take(self) -> list[Message]:
        """Return the answers since the last call."""
        found, self._found = self._found, []
        return found

    def feed(self, text: str) -> str:
        """Return the text without answers. The start of an answer is held back."""
        text, self._held = self._held + text, ""
        answer = ANSWER.search(text)
        if answer:
            shares = [
                int(each, 16) / (16 ** len(each) - 1)
                for each in answer.groups()
            ]
            self._found.append(BackgroundAnswered(is_light=sum(shares) > 1.5))
            text = text.replace(answer[0], "")
        begun = BEGUN_ANSWER.search(text)
        if begun:
            text, self._held = text[: begun.start()], begun[0]
        return text
