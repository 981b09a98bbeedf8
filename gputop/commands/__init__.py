"""Commands of `gputop`, one module each, imported when needed. `gputop.cli` lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import argparse


class Command(Protocol):
    """Interface of each module."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of the command."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Run the command, and return the exit status."""
