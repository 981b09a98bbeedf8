"""Pasted text, whose escape sequences must not become keys."""

from __future__ import annotations

import re

PASTE_START, PASTE_END = "\x1b[200~", "\x1b[201~"
BEGUN_MARK = re.compile(r"\x1b(\[(2(0[01]?)?)?)?\Z")


class PasteFilter:
    """Removes escapes from pasted text, because Textual reads some sequences in it as keys.

    Most terminals remove them, but tmux, for example, pastes its buffers unchanged.
    """

    _pasting = False
    _held = ""

    def feed(self, text: str) -> str:
        """Return the text for the parser. The start of a mark is held back."""
        text, self._held = self._held + text, ""
        begun = BEGUN_MARK.search(text)
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
