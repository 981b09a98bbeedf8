import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from gputop import cli
from gputop.agent.lines import to_line
from gputop.agent.snapshot import Event, Host, MachineState, Record, Sample
from gputop.agent.snapshot import Machine as Remote
from gputop.console import COULD_NOT_RUN, DEGRADED, FAULT, FINE, USAGE
from gputop.stream.child import Snapshot, StreamError
from tests.commands.conftest import STOPPED, Prepared, Ran, merged
from tests.health.histories import device, saw, watched
from tests.streams import NO_DRIVER, NOW, no_driver, sample

HOT = {"clock_event_reasons": ("sw_thermal",), "sm_clock_mhz": 1200}
STARVED = {"gpu_utilization_percent": saw(95, 0, 8, 3)}
FULL_CORE: dict[str, Any] = {"cpu_percent": 99.0}


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def test_the_page_has_findings_with_numbers_and_remedy_and_what_was_checked(ran: Ran) -> None:
    found = watched(STARVED, STARVED, HOT, seconds=40, **FULL_CORE)
    status, text, _ = ran(found, "why", "--seconds", "39")
    assert status == DEGRADED
    lines = text.splitlines()
    assert lines[0].startswith("node07 · 3 GPUs · watched for 39 s until ")
    assert lines[1:5] == [
        "2 warnings: 20 of 21 checks done",
        "",
        "What slows the work",
        "warning  GPUs 0 and 1: may be waiting for input, a CPU core is full",
    ]
    assert lines[5].startswith("         GPU 0: idle 64 % in 39 s · gaps every 8.0 s · CPU of its")
    assert lines[7].startswith("         GPU 1: idle 64 % in 39 s · gaps every 8.0 s · CPU of its")
    assert lines[9].startswith("         > Its main thread may be the limit: ")
    assert "warning  GPU 2: throttled by heat" in lines
    bound = lines.index("Bound by")
    assert lines[bound + 1 : bound + 3] == [
        "  GPUs 0 and 1: input (may be waiting for input, a CPU core is full)",
        "  GPU 2: heat (throttled by heat: 100 % of the time, lost 15.4 s in 39 s)",
    ]
    assert "\nChecked, no problem\n  Xid errors, memory errors, " in text
    assert "\nNot enough data\n  idle memory: on GPUs 0 and 1, not watched for long" in text
    assert all(len(line) <= 100 for line in lines)
    assert "\x1b" not in text


def test_json_has_evidence_as_numbers_with_units(ran: Ran) -> None:
    found = watched(STARVED, {}, seconds=40, **FULL_CORE)
    status, text, _ = ran(found, "why", "--json", "--seconds", "39")
    document = json.loads(text)
    assert status == DEGRADED
    assert document["severity"] == "warning"
    assert (document["checks_done"], document["checks"]) == (20, 21)
    assert document["bound_by"][device(1).uuid] == {
        "word": "compute",
        "why": "tensor cores set the pace: tensor active 52 %, DRAM active 45 %",
    }
    (finding,) = document["findings"]
    assert finding["title"] == "GPU 0: may be waiting for input, a CPU core is full"
    (gpu,) = finding["devices"]
    assert (gpu["uuid"], gpu["label"]) == (device(0).uuid, "0")
    assert gpu["evidence"][1] == {
        "label": "gaps every",
        "reading": "gpu_utilization_percent",
        "value": 8.0,
        "unit": "s",
        "seconds": 39.0,
    }
    assert document["not_enough_data"] == [
        {"checks": ["idle memory"], "reason": "on GPU 0, not watched for long enough yet"}
    ]


@pytest.mark.parametrize(
    ("readings", "status", "summary"),
    [
        ({}, FINE, "No problem found: all 21 checks done"),
        ({"clock_event_reasons": ("sw_power_cap",)}, FINE, "No problem found"),
        (STARVED, FINE, "No problem so far"),
        (HOT, DEGRADED, "1 warning: "),
        ({"ecc_uncorrected": 2, **HOT}, FAULT, "1 fault, 1 warning: "),
    ],
)
def test_the_exit_status_is_that_of_the_gravest(
    ran: Ran, readings: dict[str, Any], status: int, summary: str
) -> None:
    ended, text, error = ran(watched(readings, seconds=40), "why", "--seconds", "39")
    assert (ended, error) == (status, "")
    assert text.splitlines()[1].startswith(summary)


def test_it_watches_for_as_long_as_it_is_told(ran: Ran) -> None:
    prepared = Prepared(STOPPED, *watched({}, seconds=90))
    status, out, err = ran(prepared, "why")
    assert err.startswith("gputop: The sampler stopped: ")
    assert (status, prepared.taken) == (FINE, 35 + 2)
    assert prepared.asked == {"interval": 1.0, "gpm": True}
    assert "watched for 35 s" in out
    for seconds in ("0.5", "3601"):
        status, _, err = ran([], "why", "--seconds", seconds)
        assert status == USAGE
        assert f"'{seconds}' is no time to watch: give seconds from 1 to 3600" in err


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([StreamError(NO_DRIVER)], NO_DRIVER.what),
        ([Snapshot(no_driver(), sample(0))], NO_DRIVER.what),
        ([], "no device has answered. Try `gputop doctor`."),
    ],
)
def test_it_could_not_run(ran: Ran, found: list[Any], message: str) -> None:
    status, text, error = ran(found, "why")
    assert (status, text) == (COULD_NOT_RUN, "")
    (line,) = error.splitlines()
    assert line.startswith(f"gputop: error: {message}")


@pytest.mark.parametrize(
    ("readings", "status"), [(HOT, COULD_NOT_RUN), ({"ecc_uncorrected": 2}, FAULT)]
)
def test_a_host_that_does_not_answer_is_named_beside_what_the_others_have(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    readings: dict[str, Any],
    status: int,
) -> None:
    machines = (Remote("a", MachineState.OK), Remote("b", MachineState.AWAY, problem=NO_DRIVER))
    found = watched(readings, seconds=40, machines=machines)
    connecting = Sample(0.0, Host(), machines=(Remote("a"), Remote("b")))
    hosts = merged(found[0].inventory, connecting, *(each.sample for each in found))
    made = MagicMock(return_value=hosts)
    monkeypatch.setattr("gputop.stream.machines.Machines", made)
    assert cli.main(["why", "--host", "a", "--host", "b", "--seconds", "39"]) == status
    said = capsys.readouterr()
    assert said.out.splitlines()[0].startswith("2 hosts · 1 GPU · watched for 39 s")
    assert "FAULT    Host b: unreachable" in said.out
    assert said.err == f"gputop: error: {NO_DRIVER}\n"
    made.assert_called_once_with(["a", "b"], 1.0, None)
    hosts.ask.assert_called_once_with(gpm=True)
    hosts.close.assert_awaited_once()


def test_a_recording_is_judged_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = watched(HOT, seconds=40)
    early = dataclasses.replace(found[0].sample, events=(Event(NOW, device(0).uuid, "xid", 31),))
    records: list[Record] = [found[0].inventory, early, *(each.sample for each in found[1:])]
    file = tmp_path / "hot.jsonl"
    file.write_text("".join(f"{to_line(each)}\n" for each in records))
    assert cli.main(["why", "--replay", str(file)]) == DEGRADED
    text = capsys.readouterr().out
    assert "watched for 39 s" in text
    assert "GPU 0: throttled by heat" in text
    assert "GPU 0: Xid 31: a program" in text


def test_the_shipped_command_needs_no_terminal() -> None:
    """It prints simulated devices, marked as such, and does not load Textual."""
    program = (
        "import sys; from gputop.cli import main; "
        "status = main(['why', '--demo', '--seconds', '1', '-i', '0']); "
        "sys.exit(status or 9 * bool({'textual', 'plotext'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (FINE, "")
    assert " · SIMULATED · 1 of 8 GPUs · watched for " in done.stdout
    assert "No problem so far: " in done.stdout
