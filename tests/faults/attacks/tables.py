"""All attacks, by what they are aimed at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults.attacks import errors, files, secrets, servers, streams

if TYPE_CHECKING:
    from tests.faults.attacks.attack import Attack

TABLES: dict[str, tuple[Attack, ...]] = {
    "files": files.ATTACKS,
    "streams": streams.ATTACKS,
    "servers": servers.ATTACKS,
    "secrets": secrets.ATTACKS,
    "errors": errors.ATTACKS,
}
