"""Every character in ASCII, cell for cell: for terminals and fonts that have nothing else.

A character becomes as many ASCII characters as it takes cells, so that nothing moves. Charts keep
their heights: a filled cell becomes the heavier the fuller it is, a point of a curve stands high or
low in its cell.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from rich.cells import cell_len, set_cell_size

UNKNOWN = "?"
FILLS = "..::||##"
"""A cell filled from the bottom, by eighths."""
BRAILLE = range(0x2800, 0x2900)
LOWER_EIGHTHS = range(0x2581, 0x2589)
LEFT_EIGHTHS = range(0x2589, 0x2590)

GLYPHS = {
    # Bars: full, half, empty, unknown.
    "━": "#", "╸": "=", "─": "-", "┄": ".",
    "▌": "|", "▐": "|", "▔": "-", "▀": '"', "░": ":", "▒": ":", "▓": "#", "■": "#", "□": "o",
    "▮": "#",
    "·": "*", "–": "-", "—": "-", "…": "~", "°": " ", "×": "x", "÷": "/", "±": "+", "−": "-",
    "≥": ">", "≤": "<", "≈": "~", "≠": "!", "µ": "u", "Δ": "d", "√": "v", "∞": "8", "∑": "S",
    "←": "<", "→": ">", "↑": "^", "↓": "v", "↕": "|", "↔": "-", "⇅": "|", "↵": "<", "⏎": "<",
    "›": ">", "‹": "<", "»": ">", "«": "<", "⟨": "<", "⟩": ">", "▸": ">", "▾": "v", "▴": "^",
    "▶": ">", "◀": "<", "▲": "^", "▼": "v", "►": ">", "◄": "<", "△": "^", "▽": "v", "▷": ">",
    "•": "*", "●": "*", "○": "o", "◉": "*", "◆": "*", "◇": "o", "★": "*", "⚠": "!",
    "✓": "+", "✔": "+", "✗": "x", "✘": "x", "‘": "'", "’": "'", "“": '"', "”": '"', "ß": "s",
    "ø": "o", "Ø": "O", "æ": "a", "Æ": "A", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ı": "i",
}  # fmt: skip
SEPARATOR, ASCII_SEPARATOR = " · ", " | "


@lru_cache(4096)
def ascii_text(text: str) -> str:
    """The text in ASCII, in as many cells."""
    if text.isascii():
        return text
    plain = "".join(map(_ascii, text.replace(SEPARATOR, ASCII_SEPARATOR)))
    # Where characters join, they take other room together than each alone.
    return set_cell_size(plain, cell_len(text))


@lru_cache(4096)
def _ascii(character: str) -> str:
    if character.isascii():
        return character
    width = cell_len(character)
    return (_glyph(character) or _letters(character, width) or UNKNOWN * width)[:width].ljust(width)


def _glyph(character: str) -> str:
    if character in GLYPHS:
        return GLYPHS[character]
    code = ord(character)
    if code in BRAILLE:
        return _braille(code - BRAILLE.start)
    if code in LOWER_EIGHTHS:
        return FILLS[code - LOWER_EIGHTHS.start]
    if code in LEFT_EIGHTHS:
        return "#" if code < LEFT_EIGHTHS.start + 4 else "|"
    name = unicodedata.name(character, "")
    if not name.startswith("BOX DRAWINGS"):
        return ""
    if "VERTICAL" in name or " UP" in name or " DOWN" in name:
        crosses = any(part in name for part in ("HORIZONTAL", "LEFT", "RIGHT", "ARC", " AND "))
        return "+" if crosses else "|"
    return "-"


def _letters(character: str, width: int) -> str:
    """`é` as `e`; nothing where it is no single letter with something added."""
    base = "".join(c for c in unicodedata.normalize("NFKD", character) if c.isascii())
    return base if len(base) == width and base.isprintable() else ""


# The dots of a braille cell by row from the top: bits of its code.
_ROWS = (0x09, 0x12, 0x24, 0xC0)
_COLUMNS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
_FILLED = frozenset(
    sum(_COLUMNS[0][:left]) + sum(_COLUMNS[1][:right]) for left in range(5) for right in range(5)
)


def _braille(dots: int) -> str:
    if not dots:
        return " "
    if dots in _FILLED:
        return FILLS[dots.bit_count() - 1]
    rows = [n for n, row in enumerate(_ROWS) if dots & row]
    if rows[-1] - rows[0] >= 2:
        return "|"
    return "'--."[round(sum(rows) / len(rows))]
