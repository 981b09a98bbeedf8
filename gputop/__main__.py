"""`python -m gputop`, by which the dashboard starts its children, whatever is on the PATH."""

import sys

from gputop.cli import main

sys.exit(main())
