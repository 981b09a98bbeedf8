import re
import unicodedata
from pathlib import Path

import pytest

from gputop.text import cells
from tests.driver import FakeDevice, FakeDriver, FakeProcess
from tests.e2e.shipped import GIB, GPUTOP, run
from tests.faults.pretend import pretended
from tests.faults.texts import FIRST_PID, raw
from tests.terminal import Terminal

pytestmark = pytest.mark.driver

ALL = "\x1b[31;7m\x1b]52;c;RVZJTA==\x07[red]\x9b31m\u202e\u200be\u0301 \x1b]8;;x\x1b\\ 宽\t\n"
PAGES = (
    ["status"],
    ["status", "--processes"],
    ["stream", "--count", "1"],
    ["stream", "--count", "1", "--format", "csv"],
    ["pick", "--min-free", "900GiB"],
    ["doctor"],
    ["bench", "--device", "0"],
)


def active(text: str) -> set[str]:
    """What a terminal would act on, or what would take no column of its own."""
    return {
        f"{ord(c):04x}"
        for c in text
        if (c != "\n" and not c.isprintable())
        or unicodedata.category(c) in ("Mn", "Me", "Cf", "Cs")
    }


@pytest.fixture
def nasty_machine(driver: FakeDriver, tmp_path: Path) -> dict[str, str]:
    machine = pretended(tmp_path / "pretended", driver.library)
    machine.write("hostname", raw(f"h{ALL}")[:60])
    machine.write("user.7000", raw(f"u{ALL}"))
    machine.add(
        FIRST_PID,
        command=raw(f"cmd{ALL}") + b"\xff\0" + b"L" * 50_000,
        uid=7000,
        cgroup=b"0::/lxc.payload." + raw(ALL).replace(b"/", b"").replace(b"\n", b"") + b"\n",
    )
    name = raw(f"NVIDIA {ALL}".replace("\n", ""))[:90].decode(errors="ignore")
    holder = FakeProcess(FIRST_PID, memory_bytes=GIB)
    driver.write(FakeDevice(name=name, processes=(holder,)), driver_version="580\x1b[31;7m")
    return {**driver.environment(), **machine.environment}


@pytest.mark.daily(2)
@pytest.mark.parametrize("arguments", PAGES, ids=" ".join)
def test_pages_are_inert(arguments: list[str], nasty_machine: dict[str, str]) -> None:
    done = run(*arguments, env=nasty_machine)
    assert done.stdout + done.stderr
    assert not active(done.stdout + done.stderr), done
    assert "Traceback" not in done.stderr


def test_a_page_on_a_terminal_is_as_wide_as_it(nasty_machine: dict[str, str]) -> None:
    with Terminal([*GPUTOP, "status"], env=nasty_machine, columns=80, rows=60) as terminal:
        assert terminal.wait() == 0
        text = re.sub(rb"\x1b\[[0-9;]*m", b"", terminal.raw).replace(b"\r\n", b"\n").decode()
        assert not active(text)
        assert "␛[31;7m" in text
        assert max(map(cells, text.split("\n"))) <= 80
