"""However many devices there are, each is reached by keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.shipped import DOWN, PAGE_UP, dashboard
from tests.faults.devices import many, selected

if TYPE_CHECKING:
    from tests.driver import FakeDriver

pytestmark = pytest.mark.driver


@pytest.mark.daily(1)
@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (200, 60)])
def test_each_of_many_is_reached_by_keys(driver: FakeDriver, columns: int, rows: int) -> None:
    count = 64
    driver.write(*many(count)(0))
    with dashboard(env=driver.environment(), columns=columns, rows=rows) as terminal:
        terminal.wait_for(selected(0), what="the first device")
        for number in range(1, count):
            terminal.send(DOWN)
            terminal.wait_for(selected(number), what=f"device {number}")
        terminal.send(count * PAGE_UP)
        terminal.wait_for(selected(0), what="the first device again")
