import os
import resource
import subprocess
import sys
from pathlib import Path

import platformdirs
import pytest

from gputop.files import NoHomeError, check_target, read_at_once, user_folder, write_whole

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def names(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()]


def test_it_is_written_and_replaced(tmp_path: Path) -> None:
    file, link = tmp_path / "a", tmp_path / "link"
    write_whole(file, b"one")
    link.symlink_to(file)
    write_whole(link, b"two")
    assert file.read_bytes() == b"two"
    umask = os.umask(0o22)
    os.umask(umask)
    assert file.stat().st_mode & 0o777 == 0o666 & ~umask
    assert link.is_symlink()
    assert sorted(names(tmp_path)) == ["a", "link"]


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"x" * 2048)
    assert read_at_once(file, 2048) == b"x" * 2048
    with pytest.raises(OSError, match=r"it is larger than 1 KiB$"):
        read_at_once(file, 2047)


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
        # Half of a compiled module would be taken for a whole one.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
    )
    assert ended.stdout == "File too large\n"
    assert file.read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_only_regular_files_are_replaced(tmp_path: Path, pipe: Path) -> None:
    before = pipe.stat()
    for target in (pipe, tmp_path / "link"):
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(pipe)
        with pytest.raises(OSError, match="it is not a regular file"):
            write_whole(target, b"one")
    assert (pipe.stat().st_ino, pipe.stat().st_mode) == (before.st_ino, before.st_mode)
    with pytest.raises(OSError, match="it is not a regular file"):
        write_whole(tmp_path, b"one")
    with pytest.raises(OSError, match="it is not a regular file"):
        check_target(Path("/dev/null"))
    assert sorted(names(tmp_path)) == ["link", "pipe"]


@needs_root
def test_another_user_s_file_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"theirs")
    os.chown(file, 65534, 65534)
    with pytest.raises(OSError, match="it belongs to another user"):
        write_whole(file, b"one")
    assert file.read_bytes() == b"theirs"


def test_the_users_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", "/home/ada")
    assert user_folder("data") == tmp_path / "gputop"
    assert user_folder("config") == Path("/home/ada/.config/gputop")


@pytest.mark.usefixtures("no_home")
def test_a_user_without_a_home_folder_has_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoHomeError, match=f"HOME is not set, and user {os.getuid()} "):
        user_folder("config")
    # Versions of platformdirs before 4.12 raise nothing.
    monkeypatch.setattr(platformdirs, "user_data_path", lambda _: Path("~/.local/gputop"))
    with pytest.raises(NoHomeError):
        user_folder("data")
