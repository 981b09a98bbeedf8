"""What is seen of a monitor that breaks: with monitors of one line, of which all is known."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.faults.basics import INJECTED, SCENARIOS
from tests.faults.onlooker import NotForOthersError, Onlooker, Outcome, plain, words
from tests.faults.scenario import Scenario
from tests.peers import Peer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.driver import FakeDriver
    from tests.faults.stage import Stage

pytestmark = pytest.mark.driver

MISSING = SCENARIOS[0]


def look(driver: FakeDriver, folder: Path, script: str, scenario: Scenario = MISSING) -> Outcome:
    peer = Peer("sh", "1.0", ("sh", "-c", script))
    return Onlooker(peer, scenario, driver, folder).look(Counter())


def test_an_end_is_told_with_what_was_left_on_the_screen(
    driver: FakeDriver, tmp_path: Path
) -> None:
    outcome = look(driver, tmp_path, "echo welcome; echo 'No GPU found'; echo bye; exit 3")
    assert outcome.ended == "status 3: No GPU found"
    assert outcome.says == ("no gpu x1",)
    assert look(driver, tmp_path, "kill -SEGV $$").ended == "SIGSEGV"


def test_a_wrong_number_is_seen_even_if_it_is_soon_gone(driver: FakeDriver, tmp_path: Path) -> None:
    outcome = look(driver, tmp_path, "printf '0C '; sleep 0.5; printf '\\r   '; exit 0")
    assert outcome.wrong == "0°C"
    assert look(driver, tmp_path, "printf '40C 0.0W'").wrong is None


def test_a_sequence_that_is_passed_on_is_seen(driver: FakeDriver, tmp_path: Path) -> None:
    escaped = INJECTED.replace("\x1b", "\\033").replace("\x07", "\\a")
    outcome = look(driver, tmp_path, f"printf '{escaped}'")
    assert outcome.wrong == "escape sequence passed on"


def test_what_is_done_to_gputop_itself_is_for_no_other(driver: FakeDriver, tmp_path: Path) -> None:
    def resize(stage: Stage) -> None:
        stage.terminal.resize(1, 1)

    scenario = Scenario(name="resized", fault=resize, says=(), at_start=True)
    with pytest.raises(NotForOthersError):
        look(driver, tmp_path, "read _", scenario)


def test_numbers_are_compared_in_one_way_of_writing() -> None:
    assert plain("GPU 44%(eff 3%) 48fC 612W") == "GPU 44 %(eff 3 %) 48°C 612 W"
    assert plain("44 %, 48°C,  612 / 700 W") == "44 %, 48°C,  612 / 700 W"
    assert plain("56 48C 7 CPUs") == "56 48°C 7 CPUs"


def test_words_are_counted() -> None:
    assert words("N/A 3 n/a ERROR: not found") == {"n/a": 2, "error": 1, "not found": 1}
    assert words("??°C ?? %") == {"??": 2}
    assert words("mem  –\n0–2 – W") == {"–": 2}
