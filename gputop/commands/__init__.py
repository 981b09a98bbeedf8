"""What `gputop COMMAND` does, a module each.

They are all imported to make the parser, so they import what is heavy when they run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import argparse


class Command(Protocol):
    """What each of the modules has."""

    HELP: str
    """One line."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Says what the command takes."""
        ...

    def run(self, arguments: argparse.Namespace) -> int:
        """Does it; returns the exit status."""
        ...
