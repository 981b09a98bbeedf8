"""The program, also as `python -m gputop`: the dashboard's first frame, and then all else."""

import sys

from gputop.ui.terminal.skeleton import INTERRUPTED, SKELETON


def main() -> int:
    """Run the command line of this process, and return the exit status."""
    SKELETON.show(sys.argv[1:])
    try:
        from gputop.cli import main as run

        return run()
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        SKELETON.hide()


if __name__ == "__main__":
    sys.exit(main())
