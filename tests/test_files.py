"""A file is written whole, or what was there stays."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from gputop.files import write_whole


def names(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()]


def test_it_is_written_and_replaced(tmp_path: Path) -> None:
    file = tmp_path / "a"
    write_whole(file, b"one")
    write_whole(file, b"two")
    assert file.read_bytes() == b"two"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize(("mode", "umask", "has"), [(0o666, 0o022, 0o644), (0o600, 0, 0o600)])
def test_its_mode_is_less_the_umask(tmp_path: Path, mode: int, umask: int, has: int) -> None:
    before = os.umask(umask)
    try:
        write_whole(tmp_path / "a", b"", mode)
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == has


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there" / "a")
    write_whole(tmp_path / "link", b"one")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "a").read_bytes() == b"one"


def test_a_long_name_is_no_problem(tmp_path: Path) -> None:
    file = tmp_path / ("n" * 255)
    write_whole(file, b"one")
    assert file.read_bytes() == b"one"


def test_without_room_the_old_one_stays_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"old")
    program = (
        "import sys\nfrom pathlib import Path\nfrom gputop.files import write_whole\n"
        "try:\n    write_whole(Path(sys.argv[1]), bytes(100_000))\n"
        "except OSError as error:\n    print(error.strerror)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=Path(__file__).parent.parent,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
    )
    assert ended.stdout == "File too large\n"
    assert file.read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "no" / "a", b"")
    assert names(tmp_path) == []
