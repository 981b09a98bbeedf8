import dataclasses
from typing import Any

from gputop.agent.device import Absence
from gputop.health.why import Situation, WhyReport
from gputop.schema.advice import INDEX
from tests.health.histories import NO_GPM, several

HOT = {"clock_event_reasons": ("sw_thermal",), "sm_clock_mhz": 1200}
CAPPED = {"clock_event_reasons": ("sw_power_cap",), "power_limit_watts": 500.0}


def situation(*readings: dict[str, Any], seconds: float = 40, **changes: Any) -> Situation:
    machine = dataclasses.replace(several(*readings), **changes).watched(seconds)
    inventory = dataclasses.replace(machine.inventory, devices=tuple(machine.devices))
    return Situation(inventory, machine.sample(), machine.last)


def report_of(now: Situation, index: int | None = None) -> WhyReport:
    devices = now.inventory.devices
    return now.report(devices, None if index is None else devices[index])


def titles(report: WhyReport) -> list[str]:
    return [each.title for each in report.entries]


def test_checks_that_lack_a_reading_are_not_done_and_do_not_wait() -> None:
    absent = dict.fromkeys(NO_GPM, Absence.NOT_SUPPORTED)
    report = report_of(situation(dict(NO_GPM), seconds=400, absent=absent))
    assert report.summary == "No problem found: 19 of 21 checks done"
    assert [*report.lacking.values()] == [["tensor cores"], ["memory bandwidth"]]
    assert next(iter(report.lacking)).startswith("no SM active (needs GPM")
    assert report.waiting == 0


def test_an_entry_has_one_remedy_for_all_of_its_devices() -> None:
    report = report_of(situation(CAPPED, {}, CAPPED))
    (entry,) = report.entries
    assert entry.title == (
        "GPUs 0 and 2: held back by a power limit of 500 W, below its default of 700 W"
    )
    assert "`sudo nvidia-smi -i 0,2 -pl 700`" in entry.remedy
    assert [each.index for each in entry.devices] == [0, 2]
    assert len(entry.evidence) == 2


def test_a_page_about_one_device_has_its_own_entries_without_its_name() -> None:
    both = situation(CAPPED, HOT)
    assert [each.split(":")[0] for each in titles(report_of(both))] == ["GPU 1", "GPU 0"]
    report = report_of(both, 1)
    assert titles(report) == ["Throttled by heat; may delay its job, SM clock below GPU 0"]
    assert INDEX not in report_of(both, 0).entries[0].remedy


def test_heat_counts_at_once_while_its_rule_needs_more_time() -> None:
    report = report_of(situation(HOT, {}, seconds=5))
    (entry,) = report.entries
    assert (entry.title, entry.section) == ("GPU 0: throttled by heat", "What slows the work")
    assert "heat" not in [title for titles in report.lacking.values() for title in titles]
    # It stays the same finding, for which the bell rings once.
    found = [situation(HOT, seconds=each).findings for each in (3, 5, 40)]
    assert len({finding.key for (finding,) in found}) == 1
