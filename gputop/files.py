"""Read and write whole files safely.

gputop writes only regular files of its own user. Otherwise root could replace a device node, or
another user could read gputop's data through a file in a shared folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import Literal


class NoHomeError(Exception):
    """The user has no home folder. The message says why."""


def user_folder(kind: Literal["config", "data"]) -> Path:
    """Return gputop's folder in `$XDG_CONFIG_HOME` or `$XDG_DATA_HOME`. It may not exist.

    Raises `NoHomeError` if the variable is not set and the user has no home folder, as in a
    container with an unknown user ID.
    """
    # Not every command needs this import.
    import platformdirs

    user_path = platformdirs.user_data_path
    if kind == "config":
        user_path = platformdirs.user_config_path
    try:
        folder = user_path("gputop")
    except RuntimeError:
        folder = Path()
    # Without a home, old versions of platformdirs return a relative folder called `~`.
    if not folder.is_absolute():
        raise NoHomeError(
            f"HOME is not set, and user {os.getuid()} has no home folder"
        )
    return folder


def check_target(file: Path) -> None:
    """Raise `OSError` if `file`, or the target of a link, must not be replaced."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EPERM, "it is not a regular file")
    if status.st_uid != os.geteuid():
        raise OSError(errno.EPERM, "it belongs to another user")


def read_at_once(file: Path, most: int) -> bytes:
    """Return the content of a file of at most `most` bytes. Raises `OSError`.

    Terminals and pipes are refused, so this never waits for input.
    """
    descriptor = os.open(
        file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    )
    with open(descriptor, "rb") as source:  # noqa: PTH123 - it is open already
        if source.isatty():
            raise OSError(errno.EINVAL, "it is a terminal")
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is a pipe")
        # The result is None if no data is available.
        content = source.read(most + 1) or b""
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most >> 10} KiB")
    return content


def write_whole(
    file: Path,
    data: bytes,
    mode: int = 0o666,
) -> None:
    """Write a file completely, or raise `OSError` and leave the old content.

    The file must be new, or a regular file of this user. It gets `mode` less the umask, even if it
    replaces a file. If `file` is a link, its target is replaced.
    """
    check_target(file)
    target = Path(os.path.realpath(file))
    temporary = target.with_name(f".gputop-{os.urandom(4).hex()}")
    try:
        descriptor = os.open(
            temporary,
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC,
            mode,
        )
        with open(descriptor, "wb") as output:  # noqa: PTH123 - it is open already
            output.write(data)
            output.flush()
            os.fsync(output.fileno())
        temporary.replace(target)
    except BaseException:
        # Keep the first error.
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
