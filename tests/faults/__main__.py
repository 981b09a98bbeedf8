"""Writes the page that lists the scenarios: `python -m tests.faults`."""

from pathlib import Path

from tests.faults import machines, terminals, texts

PAGE = Path(__file__).with_name("RESULTS.md")
SCENARIOS = (*machines.SCENARIOS, *texts.SCENARIOS, *terminals.SCENARIOS)
FRAME = """\
# Faults that are tested

Each fault is made while the shipped dashboard runs in a pseudo-terminal against the fake driver.
The test (`pytest -m "slow or not slow" tests/faults/test_faults.py`) checks on each frame that no
wrong number is shown. Keys are answered meanwhile, and all processes use less than half a core,
also after the fault is mended, when the screen is as before. At the end the terminal is as it was,
and no process is left.

`python -m tests.faults` writes this page from the scenarios.

{rows}
"""


def page() -> str:
    rows = [f"- {scenario.name}" for scenario in SCENARIOS]
    return FRAME.format(rows="\n".join(rows))


if __name__ == "__main__":
    PAGE.write_text(page())
