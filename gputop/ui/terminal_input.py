"""Filter of the terminal's input: pasted text and the terminal's answers must not become keys."""

from __future__ import annotations

import re

from textual.message import Message

PASTE_START, PASTE_END = "\x1b[200~", "\x1b[201~"
BEGUN_MARK = re.compile(r"\x1b(\[(2(0[01]?)?)?)?\Z")
QUESTION = "\x1b]11;?\x1b\\"
"""Query for the terminal's background."""
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


class InputFilter:
    """Removes answers, and escapes from pasted text, because Textual reads some of them as keys.

    Most terminals remove escapes, but tmux, for example, pastes its buffers unchanged.
    """

    def __init__(self) -> None:
        self._pasting = False
        self._held = ""
        """Start of an answer or of a mark, whose rest has not arrived."""
        self._answers: list[Message] = []

    def take_answers(self) -> list[Message]:
        """Return the answers since the last call."""
        found, self._answers = self._answers, []
        return found

    def feed(self, text: str) -> str:
        """Return the text for the parser."""
        text, self._held = self._held + text, ""
        answer = ANSWER.search(text)
        if answer is not None:
            self._answers.append(background_of(answer))
            text = text.replace(answer[0], "")
        begun = BEGUN_ANSWER.search(text) or BEGUN_MARK.search(text)
        # Outside of a paste, the key Esc must not be held back.
        if begun and (self._pasting or len(begun[0]) > 2):
            text, self._held = text[: begun.start()], begun[0]
        kept = []
        while text:
            mark = PASTE_END if self._pasting else PASTE_START
            part, found, text = text.partition(mark)
            if self._pasting:
                part = part.replace("\x1b", "")
            kept += [part, found]
            if found:
                self._pasting = not self._pasting
        return "".join(kept)


def background_of(answer: re.Match[str]) -> BackgroundAnswered:
    """Return the message for an answer, which has shares of red, green and blue."""
    shares = [
        int(each, 16) / (16 ** len(each) - 1) for each in answer.groups()
    ]
    return BackgroundAnswered(is_light=sum(shares) > 1.5)
