"""Writes the output of the programs: `python -m tests.training.programs`."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from gputop.training.relay import OUTPUT
from gputop.training.runs import start_run

HERE = Path(__file__).parent
DATA = HERE.parents[1] / "data" / "training"
PROGRAMS = {
    "transformers": ("transformers_trainer.py",),
    "lightning-rich": ("lightning_trainer.py",),
    "lightning-tqdm": ("lightning_trainer.py", "tqdm"),
    "ranks-tqdm": ("tqdm_ranks.py",),
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_DATA_HOME"] = folder
        for name, (program, *words) in PROGRAMS.items():
            run, relay = start_run([sys.executable, str(HERE / program), *words], 120, 40)
            relay.wait()
            output = (run.folder / OUTPUT).read_bytes()
            # Warnings name the place of the libraries.
            output = output.replace(sys.prefix.encode(), b"/venv")
            (DATA / f"{name}.log").write_bytes(output)
            print(name, len(output), "bytes")


if __name__ == "__main__":
    main()
