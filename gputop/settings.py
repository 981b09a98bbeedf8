"""Settings, read from a TOML file and written to it on request.

The file is `gputop/config.toml` in `$XDG_CONFIG_HOME` (`~/.config`), unless `GPUTOP_CONFIG` or
`--config` names another file. The order of precedence is: option on the command line, environment
variable (`GPUTOP_THEME` and so on), file, default. An invalid setting is reported in one line, and
the others are used.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from gputop.agent.problem import Problem, ProblemError
from gputop.agent.times import (
    DEFAULT_INTERVAL,
    LONGEST_INTERVAL,
    SHORTEST_INTERVAL,
)
from gputop.files import NoHomeError, read_at_once, user_folder, write_whole
from gputop.text import visible

AUTO = "auto"
THEMES = ("dark", "light", "ansi", "colour-blind", "colour-blind-light")
DENSITIES = ("row", "compact", "full")
INTERVALS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Intervals in seconds that the user can select with keys."""
CHOICES: Mapping[str, tuple[Any, ...]] = {
    "theme": (AUTO, *THEMES),
    "density": (AUTO, *DENSITIES),
    "interval": INTERVALS,
    "ascii": (None, False, True),
}
"""Values that the user can select with keys, for settings that are not just off and on."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings. The names are the keys in the file."""

    theme: str = AUTO
    """One of `THEMES`. `auto` depends on the terminal's background and colours."""
    ascii: bool | None = None
    """True to draw in ASCII; None (`auto` in the file) depends on the terminal."""
    mouse: bool = True
    """True if gputop uses the mouse; False if the terminal selects text with it."""
    bell: bool = False
    """True if a new alert rings the terminal's bell once."""
    notes: bool = False
    """True if the terminal shows a note (OSC 9) when a job ends, a GPU becomes free or a fault
    appears."""
    on_event: str = ""
    """Command that is run on these events, with the text as its last argument."""
    interval: float = DEFAULT_INTERVAL
    """Seconds between samples, 0.25 to 60."""
    gpm: bool = True
    """True if the devices' profiling counters may be read."""
    readonly: bool = False
    """True if gputop never signals a process."""
    density: str = AUTO
    """One of `DENSITIES`; `auto` depends on the size of the terminal."""
    sort: str = AUTO
    """Title of the column that sorts the processes; `auto` is the table's default."""
    reverse: bool = False
    """True to reverse the order."""
    tree: bool = False


DEFAULT = Settings()
KEYS = tuple(field.name for field in fields(Settings))
LARGEST_BYTES = 1 << 16


class Rule(NamedTuple):
    """Valid values of a setting."""

    kind: Any
    """Type for msgspec."""
    advice: str
    accepts: Callable[[Any], object] = lambda _: True
    """Function that returns a false value if the value is invalid."""


def _one_of(values: tuple[str, ...]) -> Rule:
    return Rule(Literal[values], f"Give one of {', '.join(values)}")


def _is_interval(seconds: float) -> bool:
    return SHORTEST_INTERVAL <= seconds <= LONGEST_INTERVAL


TITLES = Rule(
    str,
    "Give the title of a column, such as MEMORY",
    re.compile("[A-Za-z0-9_%, -]{0,200}").fullmatch,
)
FLAG = Rule(bool, "Give true or false")
RULES = {
    "theme": _one_of((AUTO, *THEMES)),
    "density": _one_of((AUTO, *DENSITIES)),
    "ascii": Rule(bool, "Give true or false, or auto"),
    "interval": Rule(
        float,
        f"Give seconds from {SHORTEST_INTERVAL:g} to {LONGEST_INTERVAL:g}",
        _is_interval,
    ),
    "sort": TITLES,
    "on_event": Rule(str, "Give a command, such as notify-send"),
}
"""Valid values of the settings that are not just off and on."""


def path(
    named: str | None = None, environment: Mapping[str, str] = os.environ
) -> Path | None:
    """Return the path of the settings file, or None without a home folder. It may not exist.

    `named` is the path from the command line.
    """
    given = named or environment.get("GPUTOP_CONFIG")
    if given:
        expanded = os.path.expanduser(given)  # noqa: PTH111 - Path's own fails for ~nobody
        return None if expanded.startswith("~/") else Path(expanded)
    try:
        return user_folder("config") / "config.toml"
    except NoHomeError:
        return None


def load(
    file: Path | None,
    environment: Mapping[str, str] = os.environ,
    given: Mapping[str, Any] | None = None,
) -> tuple[Settings, list[Problem]]:
    """Return the settings, and a list of problems with them.

    `given` has valid values from the command line. A missing file is not a problem.
    """
    settings = DEFAULT
    problems: list[Problem] = []
    found: dict[str, Any] = {}
    try:
        if file is not None:
            _, found = _read(file)
    except ProblemError as error:
        problems.append(error.problem)
    for key, value in found.items():
        entry = f"{_shown(key)} = {_shown(value)} in {_shown(file)}"
        if key in KEYS:
            settings = _with(settings, key, value, entry, problems)
        else:
            why = "this gputop has no such setting"
            what = f"{_shown(key)} in {_shown(file)} is not used"
            problems.append(Problem(what, why, "Check the spelling"))
    for key in KEYS:
        variable = f"GPUTOP_{key.upper()}"
        text = environment.get(variable)
        if text:
            entry = f"{variable}={_shown(text)}"
            settings = _with(
                settings, key, text, entry, problems, is_text=True
            )
    return replace(settings, **(given or {})), problems


def _with(
    settings: Settings,
    key: str,
    value: object,
    entry: str,
    problems: list[Problem],
    *,
    is_text: bool = False,
) -> Settings:
    """Return the settings with this value. If it is invalid, add a problem instead."""
    try:
        return replace(settings, **{key: checked(key, value, is_text=is_text)})
    except ValueError as error:
        what = f"{entry} is not used"
        problems.append(Problem(what, "the value is invalid", str(error)))
    return settings


def checked(key: str, value: Any, *, is_text: bool = False) -> Any:
    """Return the value converted for `Settings`. Raises `ValueError` with the valid values.

    With `is_text`, it is the text of an environment variable.
    """
    if key == "ascii" and value == AUTO:
        return None
    # Not every command needs this import.
    import msgspec

    rule = RULES.get(key, FLAG)
    try:
        converted = msgspec.convert(value, rule.kind, strict=not is_text)
        if key == "on_event":
            shlex.split(converted)
    except ValueError:
        raise ValueError(rule.advice) from None
    if not rule.accepts(converted):
        raise ValueError(rule.advice)
    return converted


def save(file: Path | None, changes: Mapping[str, Any]) -> None:
    """Write the changed settings to the file, and keep everything else in it.

    Values that the file already has are not written again. The file is written completely or not at
    all, with mode 0600. Raises `ProblemError`.
    """
    if file is None:
        why = "HOME is not set, and there is no home folder"
        remedy = "Set HOME, or name a file with --config"
        raise ProblemError(
            Problem("The settings cannot be saved", why, remedy)
        )
    text, found = _read(file)
    wanted = {}
    for key, value in changes.items():
        if _value_in(found, key) != value:
            wanted[key] = AUTO if value is None else value
    if wanted:
        _write(file, _edited(file, text, wanted))


def _value_in(found: Mapping[str, object], key: str) -> object:
    """Return the valid value of a setting in the file, or its default."""
    if key in found:
        with contextlib.suppress(ValueError):
            return checked(key, found[key])
    return getattr(DEFAULT, key)


def _edited(
    file: Path,
    text: str,
    wanted: Mapping[str, object],
) -> str:
    """Return the file's text with these values. Comments and the order of lines are kept."""
    # This import is only needed for writing.
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document = tomlkit.parse(text)
        document.update(wanted)
        return tomlkit.dumps(document)
    except (
        LookupError,
        RecursionError,
        TOMLKitError,
        TypeError,
        ValueError,
    ) as error:
        what = f"{', '.join(wanted)} cannot be saved in {_shown(file)}"
        raise _error(what, str(error), "Change the file by hand") from error


def _read(file: Path) -> tuple[str, dict[str, Any]]:
    """Return the file's text and values; both are empty without a file. Raises `ProblemError`."""
    remedy = "Fix it, or name another one with --config"
    try:
        text = read_at_once(file, LARGEST_BYTES).decode()
        return text, tomllib.loads(text)
    except FileNotFoundError:
        return "", {}
    except OSError as error:
        why = error.strerror or str(error)
        if isinstance(error, PermissionError):
            remedy = "Check its permissions"
    except UnicodeDecodeError:
        why = "it is not UTF-8"
    except (ValueError, RecursionError) as error:
        why = str(error)
    raise _error(f"The settings in {_shown(file)} are not used", why, remedy)


def _write(file: Path, text: str) -> None:
    folder = Path(os.path.realpath(file)).parent
    try:
        folder.mkdir(
            mode=0o700,
            parents=True,
            exist_ok=True,
        )
        write_whole(file, text.encode(), mode=0o600)
    except OSError as error:
        what = f"The settings cannot be saved in {_shown(file)}"
        why = error.strerror or str(error)
        raise _error(what, why, "Name another file with --config") from error


def _error(
    what: str,
    why: str,
    remedy: str,
) -> ProblemError:
    return ProblemError(Problem(what, visible(why), remedy))


def _shown(value: object) -> str:
    """Return foreign text in one line, cut if it is long."""
    # str() fails for numbers with thousands of digits and for deeply nested arrays.
    with contextlib.suppress(ValueError, RecursionError):
        return visible(str(value), 120)
    return "…"
