"""Runs the attacks and prints what became of each.

    python -m tests.faults.attacks [--markdown] [WORD ...]

Words choose attacks by name or table. No attack may take more than 3 GiB or about a minute.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tests.faults.attacks.attack import Outcome, tried
from tests.faults.attacks.tables import TABLES

WIDE, WORDS = 66, 74
KEY_SECONDS = 1.0
"""What the slowest key may take here. The tests, which run anywhere, wait longer."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--markdown", action="store_true", help="as RESULTS.md has it")
    parser.add_argument("words", nargs="*", metavar="WORD")
    options = parser.parse_args()
    head = "| input | what happens | slowest key, ms | end, s | peak, MiB | with children | |"
    print(f"{head}\n|---|---|--:|--:|--:|--:|---|" if options.markdown else "", flush=True)
    tried_so_far, short = 0, 0
    for table, attacks in TABLES.items():
        for attack in attacks:
            if options.words and not any(w in table or w in attack.name for w in options.words):
                continue
            with tempfile.TemporaryDirectory(prefix="gputop-attack-") as name:
                for variable in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
                    os.environ[variable] = name
                outcome = tried(attack, Path(name))
            if (outcome.key or 0.0) > KEY_SECONDS:
                outcome.misses.append("key late")
            tried_so_far += 1
            short += bool(outcome.misses)
            write = markdown if options.markdown else row
            print(write(table, outcome), flush=True)
    print(f"\n{tried_so_far} attacks, {short} that fell short")
    return 1 if short else 0


def markdown(table: str, outcome: Outcome) -> str:
    """Return a row of the table in RESULTS.md."""
    cells = (f"{table}: {outcome.name}", outcome.words[:WORDS], *figures(outcome))
    return "| " + " | ".join(each.replace("|", "\\|") for each in cells) + " |"


def row(table: str, outcome: Outcome) -> str:
    """Return two lines for a terminal."""
    key, end, mib, tree, misses = figures(outcome)
    first = f"{table + ': ' + outcome.name:{WIDE}.{WIDE}} key {key:>6} ms, end {end:>5} s"
    first += f", {mib:>5} MiB, {tree:>5} with children"
    return f"{first}\n    {outcome.words[:110]}" + (f"\n    FAILED: {misses}" if misses else "")


def figures(outcome: Outcome) -> tuple[str, ...]:
    """Return the slowest key, the end, both figures of memory, and what is not as it must be."""
    return (
        "–" if outcome.key is None else f"{1000 * outcome.key:.0f}",
        "–" if outcome.exit is None else f"{outcome.exit:.1f}",
        f"{outcome.mib:.0f}",
        f"{outcome.tree_mib:.0f}",
        "; ".join(outcome.misses),
    )


if __name__ == "__main__":
    sys.exit(main())
