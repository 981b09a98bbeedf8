"""PromQL's label matchers, as `--match` has them: checked before they go into every query."""

from __future__ import annotations

import re

EXAMPLE = """--match 'cluster="a",rack=~"r1.*"'"""
LONGEST = 2000
_MATCHER = re.compile(
    r"""\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')\s*"""
)
_NAME = "__name__"


def parse_match(text: str) -> str:
    """Matchers as they stand between braces, "" for none; raises `ValueError`."""
    if len(text) > LONGEST:
        raise ValueError(f"the matchers are longer than {LONGEST} characters: give fewer.")
    inner = text.strip()
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1].strip()
    inner = inner.removesuffix(",").rstrip()
    at, found = 0, []
    while at < len(inner):
        matcher = _MATCHER.match(inner, at)
        if matcher is None:
            raise _wrong(inner[at:])
        name, operator, value = matcher.groups()
        if name == _NAME:
            raise ValueError(f"{_NAME} is the metric's name, which gputop asks for: leave it out.")
        found.append(f"{name}{operator}{value}")
        at = matcher.end()
        if at < len(inner):
            if inner[at] != ",":
                raise _wrong(inner[at:])
            at += 1
            if at >= len(inner):
                raise _wrong(",")
    return ",".join(found)


def _wrong(rest: str) -> ValueError:
    return ValueError(
        f'{rest[:60].strip()!r} is no list of label matchers, NAME="VALUE" with a comma between: '
        f"give them as in {EXAMPLE}."
    )


def quoted(value: str) -> str:
    """Text as a string of PromQL, whatever is in it."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def one_of(values: list[str]) -> str:
    """A string of PromQL with the regular expression that matches these alone."""
    # RE2 knows no escape of a letter, and Python's escapes none.
    return quoted("|".join(re.escape(value).replace(r"\ ", " ") for value in values))
