from pathlib import Path

import pytest

from tests.driver import FakeDriver
from tests.faults.__main__ import PAGE, SCENARIOS, page
from tests.faults.scenario import Scenario, Stage

pytestmark = pytest.mark.driver


@pytest.mark.daily(3)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_it_is_named_and_mended(scenario: Scenario, driver: FakeDriver, tmp_path: Path) -> None:
    Stage(scenario, driver, tmp_path).perform()


def test_the_page_lists_every_scenario() -> None:
    assert PAGE.read_text() == page(), "run `python -m tests.faults`"
