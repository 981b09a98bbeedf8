"""Another machine than this one, as gputop sees it: its name, users and processes."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.agent.fake_proc import process_files

_SOURCE = Path(__file__).with_name("pretend.c")


class Pretended:
    """A folder that says what differs; for programs started with its `environment`."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.environment = {"LD_PRELOAD": str(library), "PRETEND": str(folder)}

    def write(self, name: str, content: bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def add(self, pid: int, **process: Any) -> None:
        for name, content in process_files(pid, pages=2_000, **process).items():
            self.write(f"proc/{pid}/{name}", content)


def pretended(folder: Path, near: Path) -> Pretended:
    compiler = shutil.which("cc")
    assert compiler is not None, "it needs a C compiler"
    key = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]
    library = near.parent / f"pretend-{key}.so"
    if not library.exists():
        new = library.with_suffix(f".{os.getpid()}")
        command = [compiler, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        subprocess.run([*command, str(_SOURCE), "-o", str(new), "-ldl"], check=True, timeout=120)
        new.replace(library)
    return Pretended(folder, library)
