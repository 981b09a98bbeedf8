"""What `gputop COMMAND` does, a module each.

Each is imported when it is wanted; `gputop.cli` has their names, with a line about each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import argparse


class Command(Protocol):
    """What each of the modules has."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Says what the command takes."""
        ...

    def run(self, arguments: argparse.Namespace) -> int:
        """Does it; returns the exit status."""
        ...
