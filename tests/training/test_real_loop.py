"""A real loop of torch with a bar of tqdm under a relay: its steps, its speed and its findings."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from gputop.training.follow import training_of
from gputop.training.relay import OUTPUT
from gputop.training.runs import start_run

if TYPE_CHECKING:
    from pathlib import Path

LOOP = """
import sys, time, torch
from tqdm import tqdm
torch.set_num_threads(1)

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 100_000
    def __getitem__(self, n):
        time.sleep(0.002)
        return torch.randn(64)

model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(Slow(), batch_size=8)
seconds, slower_after = float(sys.argv[1]), float(sys.argv[2])
start, done = time.time(), 0
bar = tqdm(loader)
for batch in bar:
    loss = (model(batch) - batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    bar.set_postfix(loss=loss.item())
    done += 1
    if time.time() - start > slower_after:
        time.sleep(0.05)
    if time.time() - start > seconds:
        break
bar.close()
print('own', done, time.time() - start)
"""


def own(output: bytes) -> tuple[int, float]:
    """The steps that the loop counted itself, and their seconds."""
    found = re.search(rb"own (\d+) ([\d.]+)", output)
    assert found is not None, output[-2000:]
    return int(found[1]), float(found[2])


@pytest.mark.slow
def test_steps_a_second_are_those_that_the_loop_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    run, relay = start_run([sys.executable, "-c", LOOP, "20", "1e9"], 100, 30)
    training = training_of(run)
    while not training.ended:
        training.update()
        time.sleep(0.05)
    relay.wait(60)
    steps, seconds = own((run.folder / OUTPUT).read_bytes())
    main = training.progress.main(training.clock())
    assert main is not None
    assert main.step in (steps - 1, steps)  # tqdm counts a step when the next one begins
    rate = main.rate(training.clock(), 1000.0)
    assert rate == pytest.approx(steps / seconds, rel=0.02)
    assert training.progress.latest("loss") is not None


def alone(seconds: float) -> float:
    """The steps a second of the loop without a relay."""
    words = [sys.executable, "-c", LOOP, str(seconds), "1e9"]
    output = subprocess.run(words, capture_output=True, check=True).stdout
    steps, elapsed = own(output)
    return steps / elapsed


if __name__ == "__main__":  # the cost of a relay: python -m tests.training.test_real_loop
    import statistics

    beside, without = [], []
    for _ in range(6):
        without.append(alone(10))
        words = [sys.executable, "-c", LOOP, "10", "1e9"]
        run, relay = start_run(words, 100, 30)
        relay.wait()
        steps, elapsed = own((run.folder / OUTPUT).read_bytes())
        beside.append(steps / elapsed)
    print("alone", statistics.median(without), "under gputop run", statistics.median(beside))
