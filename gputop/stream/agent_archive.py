"""The agent as one archive that is sent over a connection and run from memory.

On the other machine `python3 -IBS -c BOOTSTRAP WORDS…` reads one line of source from its standard
input. That source reads the archive, imports the agent from it, and runs it with the WORDS and
`--control`. Requests follow on standard input. The agent ends when its standard input closes, even
if the driver hangs. No file is written.
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
"""The interpreter. It imports nothing from the working directory and writes no bytecode."""
BOOTSTRAP = 'import os;f=os.fdopen(0,"rb",0);exec(f.readline())#gputop'
"""Program for `python3 -c`. Single quotes protect it in every shell: it has no single quote,
backslash, newline or exclamation mark."""
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
"""Source that the bootstrap executes. Any Python compiles it, even 2.7, to report the version."""


MAIN = b"from gputop.agent.__main__ import main\n\nmain()\n"


def agent_archive(main: bytes | None = MAIN) -> bytes:
    """Return the agent as a zip file, with this program. The same files give the same bytes.

    Files are stored uncompressed, because compressing the whole archive saves more. It also runs as
    a file: `python3 agent.zip`. Raises `FileNotFoundError` without pynvml.
    """
    package = Path(gputop.agent.__file__).parent
    files = {"gputop/__init__.py": b"", "pynvml.py": _bindings().read_bytes()}
    for path in package.rglob("*.py"):
        name = path.relative_to(package.parent.parent).as_posix()
        files[name] = path.read_bytes()
    if main is not None:
        files["__main__.py"] = main
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name), files[name])
    return written.getvalue()


@cache
def agent_input() -> bytes:
    """Return the input of the bootstrap: source, length, and compressed archive."""
    sent = zlib.compress(agent_archive(), 9)
    return b"exec(%a)\n%d\n" % (_LOADER, len(sent)) + sent


def _bindings() -> Path:
    """Return the path of nvidia-ml-py's module without importing it."""
    spec = find_spec("pynvml")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("nvidia-ml-py is not installed")
    return Path(spec.origin)
