"""A terminal dashboard for NVIDIA GPUs, with an honest stress test on one key.

Scripts, notebooks and tests use `gputop.snapshot()`, `gputop.snapshots()` and `gputop.pick()`. The
names in `gputop.__all__` are public and follow semantic versions. Everything else may change.
"""

from gputop.agent import __version__ as __version__

DISTRIBUTION = "gputop-tui"
"""Name of the distribution. It is not published yet, so remedies use `from_checkout` instead."""


def from_checkout(what: str = ".") -> str:
    """Return the command that installs gputop from a checkout. `what` may be `'.[extra]'`."""
    return f"`pip install {what}` in a checkout of gputop"


FROM_CHECKOUT = from_checkout()
_PUBLIC = {
    **dict.fromkeys(
        ("Absence", "Device", "DeviceSample", "DeviceState"), "agent.device"
    ),
    **dict.fromkeys(
        ("Event", "Host", "Inventory", "Process"), "agent.snapshot"
    ),
    **dict.fromkeys(("ProcessKind", "Sample"), "agent.snapshot"),
    **dict.fromkeys(("Problem", "ProblemError"), "agent.problem"),
    **dict.fromkeys(("Stream", "pick", "snapshot", "snapshots"), "api"),
    "Snapshot": "stream.child",
}
"""Module of each public name."""
__all__ = list(_PUBLIC)


def __getattr__(name: str) -> object:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'gputop' has no attribute {name!r}")
    # This import is slow, and not needed by commands.
    from importlib import import_module

    return getattr(import_module(f"gputop.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return [*_PUBLIC, "__version__"]
