from collections.abc import AsyncGenerator, Callable
from importlib import import_module
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from gputop import cli
from gputop.agent.problem import Problem
from gputop.agent.snapshot import Record
from gputop.stream.child import Interruption, Snapshot

Ran = Callable[..., tuple[int, str, str]]
STOPPED = Interruption(
    Problem("The sampler stopped", "\x1b[31mred\nalert", "It is being restarted")
)


class Prepared:
    """Stands for the source of the snapshots: these, and then the error, or Ctrl+C."""

    def __init__(self, *found: Snapshot | Interruption | BaseException) -> None:
        self.found = found
        self.asked: dict[str, Any] = {}
        self.taken = 0

    async def __call__(self, *_: object, **asked: Any) -> AsyncGenerator[Snapshot | Interruption]:
        self.asked = asked
        for each in self.found:
            self.taken += 1
            if isinstance(each, BaseException):
                raise each
            yield each


def merged(*found: Record) -> MagicMock:
    async def records() -> AsyncGenerator[Record]:
        for record in found:
            yield record

    return MagicMock(records=records, close=AsyncMock())


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ran:
    def run(found: list[Any] | Prepared, *words: str) -> tuple[int, str, str]:
        prepared = found if isinstance(found, Prepared) else Prepared(*found)
        monkeypatch.setattr(import_module(f"gputop.commands.{words[0]}"), "snapshots", prepared)
        try:
            status = cli.main([*words])
        except SystemExit as end:
            status = int(end.code or 0)
        said = capsys.readouterr()
        return status, said.out, said.err

    return run
