"""The program, also as `python -m gputop`."""

import sys


def main() -> int:
    """Run the command line of this process, and return the exit status."""
    try:
        # Imported here, so that Ctrl+C ends the program quietly while it is loading.
        from gputop.cli import main as run

        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
