import time
from collections.abc import Callable


def until(
    there: Callable[[], object], seconds: float = 60.0, otherwise: Callable[[], object] = str
) -> None:
    deadline = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(0.02)
