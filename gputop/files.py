"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_whole(file: Path, data: bytes, mode: int = 0o666) -> None:
    """Writes a file, or leaves what was there as it is and raises `OSError`.

    `mode` is that of a new file, less what the umask says; one that is replaced does not keep its
    own. A link stays one, and what it points to is replaced.
    """
    target = Path(os.path.realpath(file))
    temporary = target.with_name(f".{target.name[:100]}.{os.urandom(4).hex()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with open(descriptor, "wb") as output:  # noqa: PTH123 - it is open already
            output.write(data)
            output.flush()
            os.fsync(output.fileno())
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):  # what is wrong is said by the first error
            temporary.unlink()
        raise
