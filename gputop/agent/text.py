"""Text of other programs, made safe to show, and lists in sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from unicodedata import category

_CONTROL_PICTURES = 0x2400
_COMBINING = {"Mc", "Me", "Mn"}
# Letters and signs that have no cell of their own: Hangul jamo and fillers,
# skin tones.
_JOINING = "[\u115f-\u11ff\u3164\ud7b0-\ud7ff\uffa0\U0001f3fb-\U0001f3ff]"


def visible(text: str, limit: int = 4096) -> str:
    """Make control, bidirectional, zero-width and broken characters of foreign text visible.

    A control character is replaced by its symbol (␛), any other invisible one by its code (⟨202e⟩).
    The text is cut to `limit` characters first.
    """
    text = text[:limit]
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if _stands_alone(c) else _shown(c) for c in text)


def fold_list(names: Sequence[str], most: int = 3) -> str:
    """Join names with commas, and count those after the first `most`: `a, b, c and 12 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _stands_alone(character: str) -> bool:
    return (
        character.isprintable()
        and category(character) not in _COMBINING
        and not re.match(_JOINING, character)
    )


def _shown(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(_CONTROL_PICTURES + code)
    if code == 0x7F:
        return "␡"
    # This byte was not UTF-8.
    if 0xDC80 <= code <= 0xDCFF:
        return f"⟨{code - 0xDC00:02x}⟩"
    return f"⟨{code:04x}⟩"
