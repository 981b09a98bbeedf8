"""Amounts of memory as people type them: `20GiB`, `20GB`, `20G`, `512MiB`, `80%`."""

from __future__ import annotations

import re
from typing import NamedTuple

from gputop.text import size

_AMOUNT = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?(?:(%)|([KMGT]?)(I?B)?)", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


class Amount(NamedTuple):
    """Bytes, or a share of all there is."""

    bytes: int = 0
    share: float | None = None

    def of(self, total: int) -> int:
        """Bytes, where there are so many in all."""
        return self.bytes if self.share is None else round(self.share * total)

    def __str__(self) -> str:
        if self.share is None:
            return size(self.bytes)
        return f"{100 * self.share:.6f}".rstrip("0").rstrip(".") + " %"  # as it was typed


def parse_amount(text: str) -> Amount:
    """An amount; raises `ValueError` with what, why and the remedy.

    As in coreutils, `G` and `GiB` are 1024³ and `GB` is 1000³. A number alone is refused: nobody
    knows whether it means GiB.
    """
    match = _AMOUNT.fullmatch(text.strip())
    if match:
        number, percent, prefix, unit = match.groups()
        if percent and float(number) <= 100:
            return Amount(share=float(number) / 100)
        if not percent and (prefix or (unit or "").upper() == "B"):
            base = 1000 if (unit or "").upper() == "B" else 1024
            return Amount(round(float(number) * base ** _POWERS[prefix.upper()]))
    raise ValueError(
        f"{text!r} is not an amount of memory: it is a number with a unit, or up to 100%. "
        "Give one such as 20GiB, 512MiB or 80%."
    )
