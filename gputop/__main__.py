"""`python -m gputop`: how the dashboard starts its own children, whatever is on the PATH."""

import sys

from gputop.cli import main

sys.exit(main())
