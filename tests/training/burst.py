"""A burst of output under `gputop run`: memory of the dashboard, and seconds until a key acts.

python -m tests.training.burst
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.e2e.shipped import GPUTOP, see
from tests.terminal import Terminal

KINDS = {
    "lines": "b'step 1 loss 2.5 and more words\\n' * 34_000",
    "lines of 1 MB": "b'x' * 1_000_000 + b'\\n'",
    "binary": "bytes(range(256)) * 4_000",
    "bars": "b'\\r 45%|####  | 450/1000 [00:12<00:15, 36.2it/s, loss=2.31]' * 17_000",
}
CODE = """
import os, time
time.sleep(3)
data, left = {data}, 100_000_000
while left > 0:
    left -= os.write(1, data)
print('\\nall written', flush=True)
time.sleep(60)
"""


def memory_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(text.partition("VmRSS:")[2].split()[0])


def measure(kind: str, folder: str) -> None:
    """Print the figures for a kind of output."""
    code = CODE.format(data=KINDS[kind])
    words = [*GPUTOP, "--demo", "run", "--", sys.executable, "-c", code]
    with Terminal(words, env={"XDG_DATA_HOME": folder}, columns=120, rows=40) as terminal:
        see(terminal, "4 Training", "running for")
        terminal.collect(2)
        before = most = memory_bytes(terminal.pid)
        keys = []
        while "all written" not in terminal.text:
            began = time.monotonic()
            terminal.send("3")
            see(terminal, "COMMAND")
            keys.append(time.monotonic() - began)
            terminal.send("4")
            see(terminal, "Output")
            most = max(most, memory_bytes(terminal.pid))
            terminal.collect(0.2)
        keys.sort()
        print(
            f"{kind}: {before >> 20} MiB before, {most >> 20} MiB at most; "
            f"key {keys[len(keys) // 2]:.3f} s (median), {keys[-1]:.3f} s (most) of {len(keys)}",
            flush=True,
        )


def main() -> None:
    """Measure each kind."""
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            measure(kind, folder)


if __name__ == "__main__":
    main()
