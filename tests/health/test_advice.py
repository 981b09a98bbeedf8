import re
from dataclasses import replace
from pathlib import Path

import pytest

from gputop.agent.device import Absence, Device, DeviceSample, DeviceState
from gputop.agent.snapshot import Event, Sample
from gputop.bench.plan.request import Target
from gputop.bench.plan.target_choice import why_unusable
from gputop.health.conditions import XIDS, event_text, fault_of, xid_severity
from gputop.health.findings import Severity
from gputop.schema.advice import INDEX, fill_in, fill_index, reset_advice, shared_command
from tests import streams

ROOT = Path(__file__).parents[2]
RESET = "uit gputop and the programs that use GPU 5, then `sudo nvidia-smi --gpu-reset -i 5`"
"""Its first letter depends on what is before it."""
NVLINK = "; it may be refused while its NVLink peers are in use"
NO_NVLINK = {"nvlink_rx_bytes_per_second": Absence.NOT_SUPPORTED}
CHANGES = re.compile(
    r"""nvidia-smi\b(?P<words>[^`"\n]*?\s(?:--gpu-reset|--reset\S*|-r|-rgc|-rmc|-rac|-lgc|-lmc|-ac
    |-pl|-pm|--persistence-mode\S*|-mig|-e|-c|-cgi|-dgi|-cci|-dci)\b[^`"\n]*)""",
    re.VERBOSE,
)
"""A command of nvidia-smi that changes devices."""


def unnamed(text: str) -> list[str]:
    """Commands in the text that change devices and name none."""
    flat = re.sub(r'"\n\s*f?"|\s+', " ", text)
    found = [each["words"].strip() for each in CHANGES.finditer(flat)]
    return [words for words in found if not re.search(r"(^|\s)(-i|--id)[ =]", words)]


def test_no_command_changes_all_devices() -> None:
    folders = (ROOT / name for name in ("gputop", "docs", "man", "deploy"))
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    texts = [file for file in (*files, *ROOT.glob("*.md")) if file.suffix != ".pyc"]
    told = {str(file.relative_to(ROOT)): unnamed(file.read_text()) for file in texts}
    told.pop("CHANGELOG.md")  # what was wrong before
    assert {file: words for file, words in told.items() if words} == {}
    assert len(told) > 200


def seen(readings: DeviceSample) -> Sample:
    return replace(streams.sample(0), devices=(readings,))


H100 = streams.device(5)
REMOTE = streams.device(5, machine="gpu-1", uuid=f"gpu-1/{H100.uuid}")
HERE = streams.device(5, machine="localhost")
INSTANCE = streams.device(5, mig_index=1, parent_uuid=H100.uuid)
GEFORCE = streams.device(5, compute_capability="8.9")


@pytest.mark.parametrize(
    ("device", "readings", "text"),
    [
        (GEFORCE, None, f"q{RESET}"),
        (HERE, None, f"q{RESET}{NVLINK}"),
        (H100, None, f"q{RESET}{NVLINK}"),
        (H100, streams.readings(5, absent=NO_NVLINK), f"q{RESET}"),
        (GEFORCE, streams.readings(5, nvlink_rx_bytes_per_second=0), f"q{RESET}{NVLINK}"),
        (INSTANCE, None, f"q{RESET}{NVLINK}"),
        (H100, streams.lost(5), "reboot its machine: a reset rarely reaches a lost GPU"),
        (None, None, "look in `dmesg` for the GPU that needs a reset"),
        (
            REMOTE,
            streams.readings(5, absent=NO_NVLINK),
            f"q{RESET} on gpu-1".replace("GPU 5,", "GPU 5 of gpu-1,"),
        ),
    ],
)
def test_a_reset_names_the_device_and_who_stops_first(
    device: Device | None, readings: DeviceSample | None, text: str
) -> None:
    assert reset_advice(device, readings) == text


def test_other_commands_name_the_device_and_its_machine() -> None:
    assert shared_command("-pm 1", REMOTE) == f"`sudo nvidia-smi -i {INDEX} -pm 1` on gpu-1"
    both = [H100, replace(H100, index=7)]
    assert fill_index(shared_command("-pm 1", H100), both) == "`sudo nvidia-smi -i 5,7 -pm 1`"
    mig = shared_command("-cgi 9 -C", H100, "nvidia-smi mig")
    assert fill_index(mig, [H100]) == "`sudo nvidia-smi mig -i 5 -cgi 9 -C`"
    assert fill_in("{reset}", GEFORCE) == f"Q{RESET}"


@pytest.mark.parametrize(
    ("state", "remedy"),
    [
        (DeviceState.LOST, "Usually only a reboot helps; `dmesg` has the Xid"),
        (DeviceState.NEEDS_RESET, f"Q{RESET}{NVLINK}"),
        (DeviceState.NOT_RESPONDING, "`dmesg` may have an Xid; if it lasts, reboot its machine"),
    ],
)
def test_the_state_of_a_device(state: DeviceState, remedy: str) -> None:
    readings = streams.lost(5, state)
    fault = fault_of(H100, readings)
    assert fault is not None
    assert fault.remedy == remedy
    target = Target("cuda", H100.uuid, 5, H100.name, "9.0", None)
    problem = why_unusable(seen(readings), target)
    assert problem is not None
    assert problem.remedy == remedy


def test_a_gpu_that_has_fallen_off_the_bus_is_not_reset() -> None:
    remedy = event_text(Event(0.0, H100.uuid, "xid", 79), H100).remedy
    assert remedy.startswith("Usually only a reboot helps")
    for code in XIDS:
        event = Event(0.0, H100.uuid, "xid", code)
        assert "--gpu-reset" not in event_text(event, H100, streams.lost(5)).remedy


def test_only_xids_of_a_program_are_no_fault_of_the_device() -> None:
    of_a_program = [code for code in range(200) if xid_severity(code) is Severity.WARNING]
    assert of_a_program == [8, 11, 13, 31, 32, 39, 40, 41, 43, 45, 68, 69, 137]
    others = [38, 46, 48, 54, *range(61, 65), 74, 79, 92, 94, 95, 109, 110, *range(119, 122), 136]
    others += [140, *range(143, 152), *range(154, 159), 171, 172]
    assert sorted(XIDS) == sorted(of_a_program + others)
