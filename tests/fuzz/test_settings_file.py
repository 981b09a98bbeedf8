"""Any settings file: what cannot be used is said; and it is kept whole, or not at all, and soon."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from gputop import settings
from gputop.agent.problem import ProblemError
from gputop.settings import KEYS, LARGEST_BYTES, Settings

if TYPE_CHECKING:
    from pathlib import Path

WANTED = Settings(theme="light", interval=2.0, tree=True)
VALUES = (
    *("auto", "true", '"light"', '"x"', "[1]", "{a=1}", "nan", "-inf", "1e400", "0x" + "f" * 5000),
    *("2020-01-01", "12:00:00", "[" * 200 + "]" * 200, "'''\ntheme = 1\n'''", '"\\u202e"', "[0x1]"),
)
LINE = st.builds("{} = {}".format, st.sampled_from((*KEYS, "a.b", '"t"')), st.sampled_from(VALUES))
FILE = st.lists(LINE | st.sampled_from(("# c", "[a]", "[[b]]", "", "\ufeff", "\r"))).map("\n".join)


def loaded_and_kept(file: Path) -> None:
    """Both, as the dashboard does them."""
    before = file.read_bytes()
    _, problems = settings.load(file, {"GPUTOP_INTERVAL": "9" * 5000})
    assert all(str(problem).isprintable() for problem in problems)
    try:
        settings.save(file, asdict(WANTED))
    except ProblemError as error:
        assert str(error).isprintable()  # noqa: PT017 - either way is right
        assert file.read_bytes() == before
    else:
        assert settings.load(file, {})[0] == WANTED


@hypothesis_settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(FILE.map(str.encode) | st.binary())
def test_any_file(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(content)
    loaded_and_kept(file)


MANY = LARGEST_BYTES // 16


@pytest.mark.parametrize(
    "content",
    [
        "#\n" * MANY,
        "#\n" * MANY + "[a]\nb = 1\n",
        "x = '''\n" + "[a]\n" * MANY + "'''\n",
        "x = '''\n" + 'theme = "a"\n' * (MANY // 2) + "'''\n",
        "theme =" + " " * MANY + "y\n",
        ".".join(["a"] * 2000) + " = 1",
        f"interval = 0x{'f' * MANY}\n",
        f"x = [[0x{'f' * MANY}]]\n",
    ],
    ids=["comments", "a table under comments", "tables", "keys", "blanks", "dots", "hex", "nested"],
)
def test_a_file_that_takes_long_to_look_at(tmp_path: Path, content: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(content)
    loaded_and_kept(file)
