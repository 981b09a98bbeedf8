"""A terminal dashboard for NVIDIA GPUs, with an honest stress test on one key."""

__version__ = "0.1.0"

DISTRIBUTION = "gputop-tui"
"""Name of the distribution. It is not published yet, so no remedy says to install it by name."""
FROM_CHECKOUT = "`pip install .` in a checkout of gputop"
"""How gputop is installed until it is published."""
