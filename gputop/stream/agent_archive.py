"""The agent as a program that is sent through a connection, and run from memory there.

On the other machine `python3 -IBS -c BOOTSTRAP WORDS…` reads one line of source from its standard
input. That source reads the archive, imports the agent from it, and runs it with the WORDS and
`--control`. So requests can follow on standard input, and the end of that is the end of the agent,
even if the driver hangs. No file is written.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import gputop.agent

PYTHON = ("python3", "-IBS")
"""The interpreter, which takes no module from its working directory, and writes no bytecode."""
BOOTSTRAP = 'import os;f=os.fdopen(0,"rb",0);exec(f.readline())#gputop'
"""Program for `python3 -c`. Every shell takes it as it is within single quotes: it has no quote of
that kind, no backslash, no newline and no exclamation mark."""
_LOADER = """
import sys
if sys.version_info < (3, 9):
    sys.stderr.write("gputop: error: python3 there is %d.%d, which is too old. "
                     "gputop needs 3.9 or later\\n" % sys.version_info[:2])
    sys.exit(3)
try:
    import importlib.util, io, zipfile, zlib
except ImportError as error:
    sys.stderr.write("gputop: error: python3 there cannot run gputop: %s\\n" % error)
    sys.exit(3)
def read(size):
    data = b""
    while len(data) < size:
        part = f.read(size - len(data))
        if not part:
            os._exit(0)
        data += part
    return data
archive = zipfile.ZipFile(io.BytesIO(zlib.decompress(read(int(f.readline())))))
class Loader:
    def find_spec(self, name, path=None, target=None):
        start = name.replace(".", "/")
        for file in (start + ".py", start + "/__init__.py"):
            if file in archive.namelist():
                package = file.endswith("/__init__.py")
                spec = importlib.util.spec_from_loader(name, self, is_package=package)
                spec.origin = file
                return spec
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        file = module.__spec__.origin
        exec(compile(archive.read(file), file, "exec"), module.__dict__)
sys.meta_path.insert(0, Loader())
from gputop.agent.__main__ import main
main(sys.argv[1:] + ["--control"])
"""
"""Source that the bootstrap executes. Its first lines are those of any Python, 2.7 included."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


def agent_archive() -> bytes:
    """Return the agent as a zip file, the same for the same files.

    Its files are not compressed one by one: all of them together become smaller. It can also be
    run as a file: `python3 agent.zip`. Raises `FileNotFoundError` without pynvml.
    """
    package = Path(gputop.agent.__file__).parent
    files = {"gputop/__init__.py": b"", "pynvml.py": _bindings().read_bytes()}
    for path in package.rglob("*.py"):
        name = path.relative_to(package.parent.parent).as_posix()
        files[name] = path.read_bytes()
    files["__main__.py"] = b"from gputop.agent.__main__ import main\n\nmain()\n"
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), files[name])
    return written.getvalue()


@cache
def agent_input() -> bytes:
    """Return what the bootstrap reads: its source, a length, and the compressed archive."""
    sent = zlib.compress(agent_archive(), 9)
    return b"exec(%a)\n%d\n" % (_LOADER, len(sent)) + sent


def _bindings() -> Path:
    """Return the file of nvidia-ml-py. It is not imported: that would load NVML's names."""
    spec = find_spec("pynvml")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("nvidia-ml-py is not installed")
    return Path(spec.origin)
