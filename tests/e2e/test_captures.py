"""The list of GPUs by the shipped command beside what `nvidia-smi -L` printed on real cards."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.driver import FakeDevice, FakeDriver, FakeInstance
from tests.e2e.shipped import run

pytestmark = pytest.mark.driver

CAPTURES = [*(Path(__file__).parents[1] / "data" / "captures").glob("*.txt")]


@pytest.mark.daily(2)
@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.stem)
def test_the_list_is_that_of_the_real_card(driver: FakeDriver, capture: Path) -> None:
    gpu, *instances = capture.read_text().splitlines()
    found = re.fullmatch(r"GPU 0: (.*) \(UUID: (.*)\)", gpu)
    assert found is not None
    name, uuid = found.groups()
    parts = [line.replace("(", "").replace(")", "").split() for line in instances]
    mig = tuple(FakeInstance(uuid=part[-1], name=f"{name} MIG {part[1]}") for part in parts)
    driver.write(FakeDevice(name=name, uuid=uuid, mig_mode=int(bool(mig)), instances=mig))
    done = run("status", "-L", env=driver.environment())
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [gpu, *instances]
