"""A terminal dashboard for NVIDIA GPUs, with an honest stress test on one key."""

__version__ = "0.1.0"

DISTRIBUTION = "gputop-tui"
"""Name of the distribution. It is not published yet, so no remedy says to install it by name."""


def from_checkout(what: str = ".") -> str:
    """Return the words for installing gputop until it is published; `what` may be `'.[extra]'`."""
    return f"`pip install {what}` in a checkout of gputop"


FROM_CHECKOUT = from_checkout()
