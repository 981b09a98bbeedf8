import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gputop.agent.snapshot import Inventory
from gputop.schema.decode import decode

STUB = """
#include <stdio.h>
int nvmlInit_v2(void)
{
    puts("WARNING:\\n\\nlibnvidia-ml.so in GDK package is a stub library that is attached only");
    fflush(stdout);
    return 999;
}
int nvmlInitWithFlags(unsigned int flags) { return flags ? 999 : nvmlInit_v2(); }
"""


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file, in a folder named as in the toolkit, with the link that ldconfig makes."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("cuda") / "stubs"
    folder.mkdir()
    source, library = folder / "stub.c", folder / "libnvidia-ml.so"
    source.write_text(STUB)
    subprocess.run([compiler, "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    (folder / "libnvidia-ml.so.1").symlink_to(library.name)
    return library


@pytest.mark.parametrize("program", ["gputop stream", "gputop.agent"])
def test_the_stub_is_named_and_its_warning_is_not_in_the_stream(stub: Path, program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *program.split(), "--count", "2"],
        env={**os.environ, "LD_LIBRARY_PATH": str(stub.parent)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    records = [decode(line) for line in done.stdout.splitlines()]
    problems = [each.problem for each in records if isinstance(each, Inventory) and each.problem]
    assert [problem.what for problem in problems] == ["NVIDIA library is a stub"]
    assert problems[0].why == f"{stub} is the CUDA toolkit's, for building only"
    assert "WARNING" in done.stderr
