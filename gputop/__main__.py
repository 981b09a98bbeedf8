"""The program, also as `python -m gputop`."""

import sys

from gputop.console import INTERRUPTED


def main() -> int:
    """Run the command line of this process, and return the exit status."""
    try:
        from gputop.cli import main as run

        return run()
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
