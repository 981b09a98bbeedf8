"""The same text and the same numbers in what commands write: a page, a table, CSV, metrics."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import subprocess
import unicodedata
from pathlib import Path

import pytest

from gputop.text import cells
from tests import fake_ssh
from tests.driver import FakeDriver, FakeProcess
from tests.e2e.shipped import GIB, GPUTOP, NO_DRIVER
from tests.fake_ssh import FakeSsh
from tests.faults.machines import SENTINELS
from tests.faults.pretend import pretended
from tests.faults.scenario import three
from tests.faults.texts import ALL, FIRST_PID, called, raw, records
from tests.terminal import Terminal

pytestmark = pytest.mark.driver

PAGES = (
    ["status"],
    ["status", "--processes"],
    ["stream", "--count", "1"],
    ["stream", "--count", "1", "--format", "csv"],
    ["pick", "--min-free", "900GiB"],
    ["doctor"],
    ["bench", "--device", "0"],
)


NO_NUMBER = r"4[.]?294967|2147483647|2147483[.]6|1[.]?844674|9[.]?223372"


def active(text: str) -> set[str]:
    """What a terminal would act on, or what would take no column of its own."""
    return {
        f"{ord(c):04x}"
        for c in text
        if (c != "\n" and not c.isprintable())
        or unicodedata.category(c) in ("Mn", "Me", "Cf", "Cs")
    }


def written(
    *arguments: str, env: dict[str, str], within: float = 60
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*GPUTOP, *arguments],
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=within,
        check=False,
    )


def inert(*arguments: str, env: dict[str, str]) -> str:
    """What a command writes, which nothing acts on."""
    done = written(*arguments, env=env)
    assert not active(done.stdout), done.stdout
    assert not active(done.stderr), done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def nasty_machine(driver: FakeDriver, tmp_path: Path) -> dict[str, str]:
    """The environment of a program on a machine where everything is called so."""
    pretend = pretended(tmp_path / "pretended", driver.library)
    pretend.write("hostname", raw(f"h{ALL}")[:60])
    pretend.write("user.7000", raw(f"u{ALL}"))
    container = raw(ALL).replace(b"/", b"").replace(b"\n", b"")
    pretend.add(
        FIRST_PID,
        raw(f"cmd{ALL}") + b"\xff\0" + b"L" * 50_000,
        uid=7000,
        cgroup=b"0::/lxc.payload." + container + b"\n",
    )
    driver.write(
        *(
            dataclasses.replace(each, processes=(FakeProcess(FIRST_PID, memory_bytes=GIB),))
            for each in called((ALL, ALL, ALL))(FIRST_PID)
        ),
        driver_version="580\x1b[31;7m",
    )
    return {**driver.environment(), **pretend.environment}


@pytest.mark.daily(2)
@pytest.mark.parametrize("arguments", PAGES, ids=" ".join)
def test_pages_are_inert(arguments: list[str], nasty_machine: dict[str, str]) -> None:
    assert inert(*arguments, env=nasty_machine)


def test_a_page_on_a_terminal_is_as_wide_as_it(nasty_machine: dict[str, str]) -> None:
    with Terminal([*GPUTOP, "status"], env=nasty_machine, columns=80, rows=60) as terminal:
        assert terminal.wait() == 0
        text = re.sub(rb"\x1b\[[0-9;]*m", b"", terminal.raw).replace(b"\r\n", b"\n").decode()
        assert not active(text)
        assert "␛[31;7m" in text
        assert max(map(cells, text.split("\n"))) <= 80


HOSTS = (["status"], ["stream", "--count", "2", "--format", "csv"], ["stream", "--count", "2"])


@pytest.mark.daily(1)
@pytest.mark.parametrize("arguments", HOSTS, ids=" ".join)
def test_what_hosts_send_is_inert(arguments: list[str], tmp_path: Path) -> None:
    ssh = FakeSsh(tmp_path)
    ssh.does("one")
    ssh.does("rude", r"printf '\033]52;c;x\007\033[31;7mno\n' >&2; exit 3")
    command = shlex.join(fake_ssh.stream(*records(), seconds=0.25))
    hosts = "--host", "one", "--host", "rude", "--remote-command", command
    assert inert(*arguments, *hosts, env={**NO_DRIVER, "PATH": ssh.path})


@pytest.mark.daily(2)
@pytest.mark.parametrize("arguments", [*PAGES, ["status", "--json"]], ids=" ".join)
def test_no_number_is_none(arguments: list[str], driver: FakeDriver) -> None:
    """On a machine whose second device says no number that is one."""
    first, second, _ = three(os.getpid())
    rows = (FakeProcess((1 << 32) - 1), FakeProcess(0), FakeProcess(4_190_000))
    driver.write(first, dataclasses.replace(second, **SENTINELS, processes=rows))  # type: ignore[arg-type]
    done = written(*arguments, env=driver.environment())
    text = re.sub(r'"(time|uptime_seconds|start_time)": ?[\d.]+', "", done.stdout + done.stderr)
    wrong = re.search(NO_NUMBER, text)
    assert wrong is None, text[max(0, wrong.start() - 200) : wrong.end() + 20]
