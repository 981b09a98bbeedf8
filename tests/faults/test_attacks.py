"""The quick ones of the attacks: named, bounded in memory, and over when they should be.

One of three runs every time, the others where the slow tests do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.attacks.attack import tried
from tests.faults.attacks.tables import TABLES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.attacks.attack import Attack

pytestmark = pytest.mark.driver
ATTACKS = [attack for table in TABLES.values() for attack in table]
QUICK = [pytest.param(attack, id=str(attack)) for attack in ATTACKS if attack.quick]


@pytest.mark.daily(6)
@pytest.mark.parametrize("attack", QUICK)
def test_it_does_no_harm(attack: Attack, tmp_path: Path) -> None:
    outcome = tried(attack, tmp_path)
    assert outcome.misses == [], outcome.words


def test_no_two_have_the_same_name() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)
