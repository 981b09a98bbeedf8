"""A fuzzer for the decoder, guided by coverage: `python -m tests.fuzz.decoder tests/fuzz/corpus`.

Needs `atheris` (from PyPI, in an environment of its own), and nothing else that is installed. What
it finds lands in the working directory, and the command line is libFuzzer's: `-max_total_time=900`,
`-merge=1 NEW OLD` to keep the smallest corpus of the same coverage, or the name of a finding.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

TYPES = {
    "gputop.agent.device": ("Device", "DeviceSample"),
    "gputop.agent.snapshot": ("Inventory", "Sample", "Host", "Process", "Machine", "Event"),
}
VALUES = ("null", "true", "1e999", "NaN", "-1", "9223372036854775807", "0.0005", "{}", "[]", '"ok"')


def dictionary() -> str:
    """The schema's words, as libFuzzer takes them."""
    names: set[str] = set()
    for module, classes in TYPES.items():
        records = import_module(module)
        for cls in classes:
            names.update(field.name for field in fields(getattr(records, cls)))
    words = [f'"{name}":' for name in sorted(names)] + ['"type":"sample"', '"type":"inventory"']
    words += [*VALUES, "\n", "\x1f\x8b\x08", "\\ud800", '{"interval":', '{"gpm":']
    return "".join(f'"{_escaped(word)}"\n' for word in words)


def _escaped(word: str) -> str:
    return "".join(f"\\x{ord(each):02x}" for each in word)


def main() -> None:
    """Runs until it is told to end, or something is found."""
    atheris: Any = import_module("atheris")
    with atheris.instrument_imports(include=["gputop"]):
        invariants = import_module("tests.fuzz.invariants")
    with tempfile.TemporaryDirectory() as folder:
        words = Path(folder, "words")
        words.write_text(dictionary())
        itself = Path(folder, "again")  # libFuzzer starts it anew to merge
        itself.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tests.fuzz.decoder "$@"\n')
        itself.chmod(0o700)
        options = [f"-dict={words}", "-max_len=4096"]
        atheris.Setup([str(itself), *options, *sys.argv[1:]], invariants.check_stream)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
