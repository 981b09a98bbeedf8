"""The two codecs of samples: the one that needs nothing, and msgspec's."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from gputop.schema import snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gputop.schema.fast_codec import FastCodec
    from gputop.schema.snapshot import Sample

CODECS = ("json", "msgspec")
_LOADED: list[FastCodec[Sample]] = []


@contextlib.contextmanager
def using(name: str) -> Iterator[None]:
    """Have `encode` and `decode` do it with that codec; without msgspec both are the same."""
    before = [*snapshot._FAST]
    if name == "msgspec" and not _LOADED:
        snapshot.load_fast()
        _LOADED[:] = snapshot._FAST
    snapshot._FAST[:] = _LOADED if name == "msgspec" else []
    try:
        yield
    finally:
        snapshot._FAST[:] = before


def fast() -> FastCodec[Sample]:
    """Return msgspec's, which says None where the other one has to do it."""
    with using("msgspec"):
        (found,) = snapshot._FAST
        return found
