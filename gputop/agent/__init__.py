"""The agent runs next to the GPUs. It needs only the standard library of Python 3.9 or later."""

__version__ = "0.1.0"
