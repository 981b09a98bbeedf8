"""CSV of the shipped command beside what nvidia-smi printed on real cards, field by field."""

from __future__ import annotations

import dataclasses

import pytest

from gputop.output.csv_lines import COLUMNS
from tests.driver import FakeDriver, FakeInstance
from tests.driver.captures import CAPTURES, Capture, device_of
from tests.e2e.shipped import run

pytestmark = pytest.mark.driver

COMPARED = [name for name in COLUMNS if name in CAPTURES[0].row and name != "timestamp"]
"""Columns of gputop that nvidia-smi has under the same name."""


def gputop(driver: FakeDriver, *arguments: str) -> str:
    done = run(*arguments, env=driver.environment())
    assert done.returncode == 0, done.stderr
    return done.stdout


def csv_of(driver: FakeDriver, *names: str) -> tuple[list[str], list[str]]:
    """Return header and row of one sample of one device."""
    query = ["--format", "csv", "--query", ",".join(names)]
    header, row = gputop(driver, "stream", *query, "--count", "1").splitlines()
    return header.split(", "), row.split(", ")


@pytest.mark.daily(6)
@pytest.mark.parametrize("capture", CAPTURES, ids=str)
def test_a_row_is_that_of_the_real_card(driver: FakeDriver, capture: Capture) -> None:
    driver.write(device_of(capture), driver_version=capture.row["driver_version"])
    titles, row = csv_of(driver, *COMPARED)
    assert dict(zip(COMPARED, row, strict=True)) == {name: capture.row[name] for name in COMPARED}
    assert titles == [capture.titles[name] for name in COMPARED]


@pytest.mark.daily(2)
@pytest.mark.parametrize("capture", CAPTURES[1::2], ids=str)
def test_the_list_is_that_of_the_real_card(driver: FakeDriver, capture: Capture) -> None:
    _, *instances = capture.gpus
    parts = [line.replace("(", "").replace(")", "").split() for line in instances]
    name = capture.row["name"]
    mig = tuple(FakeInstance(uuid=part[-1], name=f"{name} MIG {part[1]}") for part in parts)
    driver.write(dataclasses.replace(device_of(capture), instances=mig))
    assert gputop(driver, "status", "-L").splitlines() == [*capture.gpus]
