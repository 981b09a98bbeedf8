"""Work that a monitor must not slow down: `python -m tests.perf.loads soak|training DEVICE`.

Prints a line for each piece of work: when it was done, by the monotonic clock that all processes
share, and how much has been done since the start. Runs until its standard output closes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch

PIECE_SECONDS = 0.2


def soak(device: torch.device) -> Callable[[], None]:
    """One product: bfloat16 of 8192 on a GPU, float32 of 768 on a CPU."""
    size, dtype = (8192, torch.bfloat16) if device.type == "cuda" else (768, torch.float32)
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    out = torch.empty_like(a)

    def step() -> None:
        torch.matmul(a, b, out=out)

    return step


def training(device: torch.device) -> Callable[[], None]:
    """One step of a small network, whose many small kernels need the host all the time."""
    width = 1024 if device.type == "cuda" else 256
    layers = [layer for _ in range(8) for layer in (torch.nn.Linear(width, width), torch.nn.GELU())]
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    inputs = torch.randn(256, width, device=device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.mse_loss(model(inputs), inputs).backward()
        optimizer.step()

    return step


LOADS = {"soak": soak, "training": training}


def main() -> None:
    kind, name = sys.argv[1:]
    device = torch.device(name)
    if device.type == "cpu":
        torch.set_num_threads(1)
    step = LOADS[kind](device)
    done, batch = 0, 1
    while True:
        began = time.monotonic()
        for _ in range(batch):
            step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        now = time.monotonic()
        done += batch
        print(now, done, flush=True)
        batch = max(1, round(batch * PIECE_SECONDS / max(now - began, PIECE_SECONDS / 10)))


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        sys.stderr.close()
