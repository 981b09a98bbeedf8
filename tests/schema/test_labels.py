import dataclasses
from collections import Counter
from typing import Any

from gputop.agent.device import (
    READINGS,
    SERIES_READINGS,
    Absence,
    Device,
    DeviceSample,
    DeviceState,
)
from gputop.agent.nvml.device_queries import clock_event_times
from gputop.agent.snapshot import Event, Host
from gputop.agent.words import CLOCK_EVENT_BITS, RECOVERY_ACTIONS
from gputop.health.conditions import XIDS, event_text, fault_of
from gputop.schema.labels import ROWS
from gputop.schema.values import CAUSES, absence_text, value_text
from tests import streams

GIB = 1 << 30
SHOWN = {*READINGS} - {*SERIES_READINGS}
DEVICE_FIELDS = {f.name for f in dataclasses.fields(Device)} - {"absent"}
SILENT = DeviceState.NOT_RESPONDING
BY_LABEL = {row.label: row for row in ROWS}


def test_labels_are_unique_and_fit() -> None:
    shown = Counter(name for row in ROWS for name in row.names)
    assert shown == Counter({*SHOWN, *DEVICE_FIELDS})
    assert len(BY_LABEL) == len(ROWS)
    assert max(len(row.label) for row in ROWS) <= 13
    for row in ROWS:
        first, *rest = row.readings
        assert first.template.count("{}") == len(row.names)
        assert all(reading.term for reading in row.readings) == bool(rest)


def test_every_word_of_the_driver_has_words_for_people() -> None:
    assert {*CLOCK_EVENT_BITS, *clock_event_times((580, 82)), "thermal"} <= set(CAUSES)
    for action in RECOVERY_ACTIONS.values():
        assert "_" not in value_text("recovery_action", action)


def test_what_says_nothing_about_a_device_is_left_out() -> None:
    gpu, sample = Device(0, "GPU-0", "Fake"), DeviceSample("GPU-0")
    hidden = [row.label for row in ROWS if not row.applies(gpu, sample)]
    assert hidden == [
        *("engine active", "limit set to", "T.Limit", "T.Limit max", "gfx clock"),
        *("uncorr. rows", "host", "MIG instance", "part of"),
    ]
    instance = dataclasses.replace(
        gpu, parent_uuid="GPU-9", mig_index=1, mig_gpu_instance=7, mig_compute_instance=0
    )
    assert [row.label for row in ROWS if not row.applies(instance, sample)][-1] == "host"
    assert BY_LABEL["MIG instance"].text(instance, sample) == ("1, GPU instance 7, compute 0")
    unknown = dataclasses.replace(gpu, absent={"parent_uuid": Absence.ERROR})
    assert BY_LABEL["part of"].applies(unknown, sample)


GPU = Device(0, "GPU-0", "Fake")
MIG = dataclasses.replace(GPU, mig_mode="enabled")
DEVICES = {
    "a GPU": GPU,
    "with the host's memory": dataclasses.replace(GPU, memory_is_shared=True),
    "with MIG": MIG,
    "an instance": dataclasses.replace(MIG, parent_uuid="GPU-9", mig_index=0),
    "a guest": dataclasses.replace(GPU, virtualization="vgpu"),
}
HOST = Host(memory_used_bytes=round(41.2 * GIB), memory_total_bytes=119 * GIB)


def test_reasons_are_right_for_the_reading(snapshot: Any) -> None:
    told: dict[str, list[str]] = {}
    for kind, device in DEVICES.items():
        for name in sorted({*SHOWN, *DEVICE_FIELDS, "processes"}):
            texts = [absence_text(name, absence, device, HOST) for absence in Absence]
            assert len({*texts}) == len(Absence)
            for absence, text in zip(Absence, texts, strict=True):
                assert text.isprintable()
                assert len(text) <= 60
                told.setdefault(f"{kind}, {absence.value}: {text}", []).append(name)
    whole = ""
    for text, names in told.items():
        whole += f"{text}: {', '.join(names) if len(names) < 20 else len(names)}\n"
    assert whole == snapshot


def test_a_part_that_is_missing_says_which_and_why() -> None:
    row = BY_LABEL["power limit"]
    device = dataclasses.replace(GPU, absent={"power_limit_default_watts": Absence.NO_PERMISSION})
    sample = DeviceSample("GPU-0", power_limit_watts=650.0)
    assert row.text(device, sample) == "650 W, default –"
    reason = "no permission: run as root"
    assert row.reason(device, sample) == f"default: {reason}"
    both = DeviceSample("GPU-0", absent={"power_limit_watts": Absence.NO_PERMISSION})
    assert (row.text(device, both), row.reason(device, both)) == ("–", reason)
    other = DeviceSample("GPU-0", absent={"power_limit_watts": Absence.ERROR})
    assert row.reason(device, other) == (
        f"limit: the driver failed: `nvidia-smi -q` may say more; default: {reason}"
    )
    assert row.reason(streams.device(0), sample) == ""


FAULTS = (
    *((DeviceState.LOST, Absence.LOST), (DeviceState.NEEDS_RESET, Absence.LOST)),
    *((SILENT, reason) for reason in (Absence.TIMED_OUT, Absence.ERROR, Absence.NO_PERMISSION)),
)
EVENTS = (
    *(Event(0.0, "GPU-0", "xid", 79), Event(0.0, "GPU-0", "xid", 12345)),
    *(Event(0.0, None, "xid", 999), Event(0.0, None, "xid"), Event(0.0, "GPU-0", "lost")),
    *(Event(0.0, "GPU-0", "ok"), Event(0.0, "GPU-0", "new\x1b", 3)),
)


def test_what_is_wrong_with_a_device(snapshot: Any) -> None:
    told = [event_text(event, None).what for event in EVENTS]
    for state, absence in FAULTS:
        sample = DeviceSample("GPU-0", state, 12.0, absent=dict.fromkeys(READINGS, absence))
        fault = fault_of(streams.device(0), sample)
        assert fault is not None
        assert "ther devices" not in fault.remedy
        told.append(f"{fault.what}. {fault.remedy}")
    assert "\n".join(told) == snapshot


RESET_FIRST = {46, 48, 62, 64, 95, 109, 119, 120, 136, 140, 143, 156, 158}
"""Those that NVIDIA's catalogue says to reset the device for."""
LEAVE_ALONE = {38, 43, 45, 157}
"""Those where it says to ignore them."""
PROGRAM_FIRST = {8, 11, 13, 31, 32, 39, 40, 41, 68, 69, 94, 137}
"""Those where the program is what has to be looked at, or started again."""


def test_what_to_do_first_is_what_the_catalogue_says() -> None:
    remedies = {number: fault.remedy.lower() for number, fault in XIDS.items()}
    assert all("reset" in remedies[number] for number in RESET_FIRST)
    assert not any("reset" in remedies[number] for number in LEAVE_ALONE)
    assert all("program" in remedies[n] or "start it again" in remedies[n] for n in PROGRAM_FIRST)
