"""A program called `ssh` that goes nowhere: what each host does is said by the test.

with a host's behaviour unsaid, the command runs here, as the login shell over there would run it.
"""

import sys
from pathlib import Path

from gputop.agent.lines import to_line
from gputop.agent.snapshot import Inventory, Sample
from tests import streams

SCRIPT = """\
#!/bin/sh
while [ "$1" != -- ]; do shift; done
host=$2 command=$3
[ ! -e {folder}/"$host".sh ] || . {folder}/"$host".sh
exec /bin/sh -c "exec $command"
"""

REFUSED = 'echo "ssh: connect to host $host port 22: Connection refused" >&2; exit 255'
NO_KEY = 'echo "ada@$host: Permission denied (publickey,password)." >&2; exit 255'
CHANGED = """\
echo "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @" >&2
echo "Host key verification failed." >&2
exit 255"""
HANGING = "exec sleep 600"
MISSING = "command=no-such-gputop"
NOISY = r"""printf 'Welcome to \033[31mhost\033[0m\n\n{"motd": 1}\n'"""

TITLE = r"""printf '\033]0;ada@host: ~\007'"""
PROMPT = f"printf 'Choose a project: '; {HANGING}"


class FakeSsh:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "ssh"
        program.write_text(SCRIPT.format(folder=folder))
        program.chmod(0o755)

    def does(self, host: str, shell: str = "") -> None:
        """What that host does from now on, before it runs the command."""
        (self.folder / f"{host}.sh").write_text(shell)

    @property
    def path(self) -> str:
        return f"{self.folder}:/usr/bin:/bin"


STREAM = """\
import os, select, sys, time
inventory, sample, seconds = sys.argv[1:4]
os.write(1, inventory.encode() + b"\\n")
while True:
    os.write(1, sample.encode() + b"\\n")
    due = time.monotonic() + float(seconds)
    while select.select([0], [], [], max(0.0, due - time.monotonic()))[0]:
        asked = os.read(0, 4096)
        if not asked:
            sys.exit()
        with open(os.environ.get("ASKED", os.devnull), "ab") as file:
            file.write(asked)
"""
"""A stream as a sampler's, from prepared records: it ends with its standard input."""


def stream(
    inventory: Inventory | None = None, sample: Sample | None = None, seconds: float = 0.05
) -> list[str]:
    """What to run as a remote gputop; the words that follow do not matter to it."""
    return [
        *(sys.executable, "-S", "-c", STREAM),
        to_line(inventory or streams.inventory(2)),
        to_line(sample or streams.sample(2)),
        f"{seconds}",
    ]
