"""Files of the system. A missing or hidden file counts as empty."""

from __future__ import annotations

from pathlib import Path


def text_of(file: Path) -> str:
    """Return the content of a file, or "" if it cannot be read."""
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""


def number_in(file: Path) -> int | None:
    """Return the number in a file, or None if there is none."""
    try:
        return int(text_of(file))
    except ValueError:
        return None


def paths(folder: Path, pattern: str) -> list[Path]:
    """Return the sorted paths below a folder that match a pattern and are visible."""
    try:
        return sorted(folder.glob(pattern))
    # ValueError: no file can have such a name.
    except (OSError, ValueError):
        return []
