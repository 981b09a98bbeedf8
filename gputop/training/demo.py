"""The simulated training of `--demo`, on the simulated GPUs of the agent."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator

from gputop.agent.simulated import FIRST_PID, STARVED_DEVICE
from gputop.training.follow import Training
from gputop.training.runs import Piece

COMMAND = (
    *("torchrun", "--nproc-per-node", f"{STARVED_DEVICE}"),
    *("train.py", "--config", "llama-8b.yaml"),
)
PAST_SECONDS = 600.0
"""Seconds of output that exist at the start."""
RATE, SLOW_RATE = 2.44, 2.0
"""Steps per second at first, and since a GPU became too hot."""
FIRST_STEP, TOTAL = 41_200, 60_000
LOG_STEPS, SAVE_STEPS = 5, 200


class SimulatedOutput:
    """Output of a training that becomes slower when the dashboard starts."""

    def __init__(self) -> None:
        self._slow_from = time.time()
        self._next = self._slow_from - PAST_SECONDS
        self._step = FIRST_STEP
        self._noise = random.Random(8)  # noqa: S311 - a picture, not a secret

    def read(self) -> Iterator[Piece]:
        """Yield the lines up to now."""
        while self._next <= time.time():
            yield Piece(self._line().encode(), self._next)
            is_slow = self._next > self._slow_from
            rate = SLOW_RATE if is_slow else RATE
            self._next += LOG_STEPS / rate * self._noise.uniform(0.97, 1.03)
            self._step += LOG_STEPS

    def _line(self) -> str:
        loss = 1.9 + 4_000 / self._step + self._noise.gauss(0, 0.02)
        line = f"step {self._step}/{TOTAL} loss {loss:.4f} lr 2.1e-4\n"
        if self._step % SAVE_STEPS == 0:
            line += f"saved checkpoints/{self._step}\n"
        return line


class SimulatedTraining(Training):
    """The training of six simulated GPUs. It does not end."""

    is_simulated = True

    def __init__(self) -> None:
        super().__init__(COMMAND, FIRST_PID - 1, SimulatedOutput())

    def _has_ended(self) -> bool:
        return False

    def members(self, pids: Iterable[int]) -> frozenset[int]:
        """Return the pids that belong to the training."""
        ranks = range(FIRST_PID, FIRST_PID + STARVED_DEVICE)
        return frozenset(pid for pid in pids if pid in ranks)
