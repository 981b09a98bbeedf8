"""Names of `nvidia-smi --query-gpu` with their aliases and units, from `smi_fields.txt`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from gputop.frozen import dataclass
from gputop.schema.device import Absence

NONE = "none"
"""Question of a value that NVML does not have."""
MISSING = {
    Absence.NO_PERMISSION: "[Insufficient Permissions]",
    Absence.LOST: "[GPU is lost]",
    Absence.TIMED_OUT: "[Unknown Error]",
    Absence.ERROR: "[Unknown Error]",
}
"""Texts in place of a missing value, by reason. All others are "not available"."""


@dataclass(frozen=True, slots=True)
class SmiField:
    """A name that nvidia-smi knows."""

    name: str
    aliases: tuple[str, ...]
    unit: str
    question: str
    """Question to NVML, asked only if somebody wants the value; empty for a reading of the
    catalogue, which every sample has."""
    form: str
    words: tuple[str, ...] = ()
    """Text of each number from 0; empty for one that stands for "not available"."""


@cache
def smi_fields() -> Mapping[str, SmiField]:
    """Return the fields by name, without their aliases."""
    table = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    found, words = {}, {}
    for line in table.splitlines():
        names, *rest = line.split() or ["#"]
        if names == "form":
            form, _, texts = line.removeprefix("form ").partition(": ")
            words[form] = tuple(texts.split("|"))
        elif not names.startswith("#"):
            name, *aliases = names.split("=")
            unit, question, form = ["" if word == "-" else word for word in (*rest, "", "", "")[:3]]
            known = words.get(form, ())
            found[name] = SmiField(name, tuple(aliases), unit, question, form, known)
    return found


def missing_text(name: str, reason: Absence | None) -> str:
    """Return the text that nvidia-smi prints where the field has no value, for that reason."""
    bare = name == "temperature.memory" or name.startswith("fabric.")
    return MISSING.get(reason or Absence.NOT_SUPPORTED, "N/A" if bare else "[N/A]")


def is_missing(text: str) -> bool:
    """Return True if the text stands for a missing value, and takes no unit."""
    return text == "N/A" or text.startswith("[")
