"""What is there in each version of Python."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from gputop.compat import StrEnum, module_command, timeout, timeout_at

if TYPE_CHECKING:
    from pathlib import Path


class Colour(StrEnum):
    RED = "red"


def test_a_member_is_its_text() -> None:
    assert f"{Colour.RED!s} {Colour.RED:>5} {json.dumps(Colour.RED)}" == 'red   red "red"'
    assert Colour("red") is Colour.RED


async def test_a_timeout_ends_a_wait_and_none_does_not() -> None:
    for due in (timeout(0), timeout_at(asyncio.get_running_loop().time() - 1)):
        with pytest.raises(asyncio.TimeoutError):
            async with due:
                await asyncio.Event().wait()
    async with timeout(None), timeout_at(None):
        await asyncio.sleep(0)


@pytest.mark.parametrize("module", ["msgspec", "runpy", "gputop"])
def test_a_file_of_the_working_directory_is_not_imported(module: str, tmp_path: Path) -> None:
    (tmp_path / f"{module}.py").write_text("raise SystemExit('imported')")
    done = subprocess.run(
        [*module_command("gputop"), "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
