"""Entry point of `gputop` and of `python -m gputop`."""

import sys


def main() -> int:
    """Run the command line and return the exit status."""
    try:
        # Import here, so that Ctrl+C during the import also ends the program quietly.
        from gputop.cli import main as run

        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
