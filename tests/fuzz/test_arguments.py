import argparse
import contextlib
import io
import re

import pytest

from gputop.commands.parser import COMMANDS, parser
from gputop.console import FINE, USAGE

PARSER = parser()


TYPED = """
- -- -1 0 1 0.25 1e999 nan inf 1_0 ٣ 0,1 0:1 cpu cpu,0 , 0-3 1GiB -1GiB 1e400GiB localhost
-oProxyCommand=x 名前 csv csv,noheader json :9400 [::1]:0 0.0.0.0:70000 [::1 :: %n / . float32
bfloat16,float32 soak 10s 1h 1e99h bash busy,name ~nobody
"""
ODD = ("", " 1 ", "a b", "9" * 20, "9" * 400, "\udc80", "\0", "\x1b[2J", "x" * 5000)
VALUES = (*TYPED.split(), *ODD)


def check(words: list[str]) -> None:
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            PARSER.parse_args(words)
        except SystemExit as end:
            if end.code != FINE:  # --help among them
                assert end.code == USAGE  # noqa: PT017 - either way is right
                assert re.fullmatch("gputop.*\n", said.getvalue())
                assert said.getvalue()[:-1].isprintable()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_with_every_value(name: str) -> None:
    sub = next(a for a in PARSER._actions if isinstance(a, argparse._SubParsersAction))
    options = {each for action in sub.choices[name]._actions for each in action.option_strings}
    for option in sorted(options - {"-h", "--help"}):
        for value in VALUES:
            check([name, f"{option}={value}" if option.startswith("--") else option, value])
