"""How old each device's readings are in the stream: `python -m tests.perf.ages`.

Three machines with the fake driver: eight devices of which one hangs for ever, eight devices of
which one takes 0.4 s for each call, and 64 devices. `gputop stream` runs on each of them, and the
hang and the slow calls begin while it does. For a healthy device the age should be at most 1.2
intervals in every sample. The ages of the one that hangs or is slow are printed beside it.
"""

import argparse
import dataclasses
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from gputop.agent.snapshot import Sample
from gputop.schema.decode import decode
from gputop.stream.launch import module_command
from tests.driver import FakeDevice, FakeDriver, build

ALLOWED_INTERVALS = 1.2
SICK = 3
BEGINS_AT = 5
"""Number of the sample after which the sick device is sick."""
CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "one of 8 hangs": (8, {"hang": True}),
    "one of 8 takes 0.4 s a call": (8, {"delay_ms": 400}),
    "64 devices": (64, {}),
}


def ages(
    driver: FakeDriver, devices: int, sickness: dict[str, Any], interval: float, samples: int
) -> tuple[list[float], list[float]]:
    """Return the ages of healthy devices and of the sick one, in intervals."""
    usual = FakeDevice()
    driver.write(*(dataclasses.replace(usual, uuid=f"GPU-{n}") for n in range(devices)))
    command = [*module_command("gputop"), "stream", "--interval", f"{interval:g}"]
    environment = {**os.environ, **driver.environment()}
    environment.pop("FAKE_NVML_CALLS", None)  # each call would be written into a file
    healthy, sick, taken = list[float](), list[float](), 0
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            record = decode(line)
            if not isinstance(record, Sample) or len(record.devices) < devices:
                continue
            taken += 1
            if taken == BEGINS_AT and sickness:
                driver.change(SICK, **sickness)
            for index, device in enumerate(record.devices):
                if device.age_seconds is not None:
                    found = sick if sickness and index == SICK else healthy
                    found.append(device.age_seconds / interval)
            if taken == samples:
                break
        process.kill()
    return healthy, sick


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--interval", type=float, default=1.0)
    options = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        driver = FakeDriver(Path(folder), build(Path(folder), "cc"))
        print("in intervals                   median   oldest  sick: oldest")
        for name, (devices, sickness) in CASES.items():
            healthy, sick = ages(driver, devices, sickness, options.interval, options.samples)
            is_old = max(healthy) > ALLOWED_INTERVALS
            row = f"{name:<30} {statistics.median(healthy):6.3f} {max(healthy):8.3f}"
            row += f" {max(sick, default=0.0):13.1f}"
            print(row, "  TOO OLD" if is_old else "", flush=True)
            failed = failed or is_old
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
