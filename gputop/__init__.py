"""A terminal dashboard for NVIDIA GPUs, with an honest stress test on one key."""

__version__ = "0.1.0"
