"""Settings: read from a TOML file, and written there when the user asks for it.

The file is `gputop/config.toml` in `$XDG_CONFIG_HOME` (`~/.config`), unless `GPUTOP_CONFIG` or
`--config` names another. An option on the command line overrides an environment variable
(`GPUTOP_THEME` and so on), that overrides the file, and the file the default. An invalid setting is
reported in one line, and all others are used.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from gputop.agent.problem import Problem, ProblemError
from gputop.agent.times import LONGEST_INTERVAL, SHORTEST_INTERVAL
from gputop.files import NoHomeError, read_at_once, user_folder, write_whole
from gputop.text import visible

AUTO = "auto"
THEMES = ("dark", "light", "ansi", "colour-blind", "colour-blind-light")
DENSITIES = ("row", "compact", "full")
CHARTS = ("busy+memory", "all", "busy")
INTERVALS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Seconds between samples that keys select from."""
CHOICES: Mapping[str, tuple[Any, ...]] = {
    "theme": (AUTO, *THEMES),
    "density": (AUTO, *DENSITIES),
    "charts": CHARTS,
    "interval": INTERVALS,
    "ascii": (None, False, True),
}
"""Values that keys select from, where they are not just off and on."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings, each a key of the file by its name."""

    theme: str = AUTO
    """One of `THEMES`; `auto` is dark, or `ansi` if the terminal has 16 colours."""
    ascii: bool | None = None
    """True to draw in ASCII; None, in the file `auto`, lets the terminal decide."""
    mouse: bool = True
    """True if gputop uses the mouse; else the terminal selects text with it."""
    bell: bool = False
    """True if a new alert rings the terminal's bell once."""
    interval: float = 1.0
    """Seconds between samples, 0.25 to 60."""
    gpm: bool = True
    """True if the devices' profiling counters may be read."""
    readonly: bool = False
    """True if gputop never signals a process."""
    density: str = AUTO
    """One of `DENSITIES`; `auto` fits the room."""
    charts: str = CHARTS[0]
    """One of `CHARTS`: the charts in panels, as far as there is room; `all` has power, too."""
    scroll: bool = False
    """True if charts scroll; else they are written over from the left, which sends much less."""
    sort: str = AUTO
    """Title of the column that sorts the processes; `auto` is the table's default."""
    reverse: bool = False
    """True to reverse that order."""
    tree: bool = False
    hidden_columns: str = ""
    """Titles of columns of processes that are not shown, separated by commas."""


DEFAULT = Settings()
KEYS = tuple(field.name for field in fields(Settings))
LARGEST_BYTES = 1 << 16
REMEDY = "Fix it, or name another one with --config"


def path(
    named: str | None = None, environment: Mapping[str, str] = os.environ
) -> Path | None:
    """Return the path of the file, which need not exist; None without a home folder.

    `named` is from the command line.
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
    """Load the settings, and the problems with them.

    `given` is from the command line: keys with valid values. A missing file is no problem.
    """
    settings = DEFAULT
    problems: list[Problem] = []
    found: dict[str, Any] = {}
    try:
        if file is not None:
            _, found = _read(file)
    except ProblemError as error:
        problems.append(error.problem)
    entries = [
        (k, v, f"{_shown(k)} = {_shown(v)} in {_shown(file)}") for k, v in found.items()
    ]
    entries += [
        (key, _from_text(key, text), f"{name}={_shown(text)}")
        for key in KEYS
        if (text := environment.get(name := f"GPUTOP_{key.upper()}"))
    ]
    for key, value, entry in entries:
        if key not in KEYS:
            what = f"{_shown(key)} in {_shown(file)} is not used"
            problems.append(
                Problem(what, "this gputop has no such setting", "Check the spelling")
            )
            continue
        try:
            settings = replace(settings, **{key: checked(key, value)})
        except ValueError as error:
            problems.append(
                Problem(f"{entry} is not used", "the value is invalid", str(error))
            )
    return replace(settings, **(given or {})), problems


def checked(key: str, value: object) -> Any:
    """Return the value for `Settings`. Raises `ValueError` with the valid values."""
    match key:
        case "theme" | "density" | "charts":
            if value not in CHOICES[key]:
                raise ValueError(f"Give one of {', '.join(CHOICES[key])}")
        case "interval":
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                value = math.nan
            if not SHORTEST_INTERVAL <= value <= LONGEST_INTERVAL:
                raise ValueError(
                    f"Give seconds from {SHORTEST_INTERVAL:g} to {LONGEST_INTERVAL:g}"
                )
            return float(value)
        case "sort" | "hidden_columns":
            if not isinstance(value, str) or not re.fullmatch(
                "[A-Za-z0-9_%, -]{0,200}", value
            ):
                raise ValueError("Give the title of a column, such as MEMORY")
            return value.replace(", ", ",")
        case "ascii" if value == AUTO:
            return None
        case _ if not isinstance(value, bool):
            raise ValueError(
                f"Give true or false{', or auto' if key == 'ascii' else ''}"
            )
    return value


WORDS = {"1": True, "true": True, "yes": True, "on": True}
WORDS |= {"0": False, "false": False, "no": False, "off": False}


def _from_text(key: str, text: str) -> object:
    """Return the value of an environment variable, still to be checked."""
    if key == "interval":
        with contextlib.suppress(ValueError):
            return float(text)
    return (
        text
        if isinstance(getattr(DEFAULT, key), str)
        else WORDS.get(text.lower(), text)
    )


def save(file: Path | None, changes: Mapping[str, Any]) -> None:
    """Write these settings to the file, and leave everything else in it as it is.

    `changes` holds what the user changed in the dashboard. A value that the file already has is not
    written again. The file is written whole or not at all, for its owner alone. Raises
    `ProblemError`.
    """
    if file is None:
        why = "HOME is not set, and there is no home folder"
        remedy = "Set HOME, or name a file with --config"
        raise ProblemError(Problem("The settings cannot be saved", why, remedy))
    text, found = _read(file)
    wanted = {}
    for key, value in changes.items():
        if _value_in(found, key) != value:
            wanted[key] = AUTO if value is None else value
    if wanted:
        _write(file, _edited(file, text, found, wanted))


def _value_in(found: Mapping[str, object], key: str) -> object:
    """Return the value of a setting according to the file, or its default."""
    if key in found:
        with contextlib.suppress(ValueError):
            return checked(key, found[key])
    return getattr(DEFAULT, key)


def _edited(
    file: Path, text: str, found: Mapping[str, object], wanted: Mapping[str, object]
) -> str:
    """Return the file's text with these values. Comments and the order of lines stay."""
    import tomlkit  # only needed for writing
    from tomlkit.exceptions import TOMLKitError

    try:
        document = tomlkit.parse(text)
        for key, value in wanted.items():
            document[key] = value
        edited = tomlkit.dumps(document)
        is_right = _content(tomllib.loads(edited)) == _content({**found, **wanted})
    except (LookupError, RecursionError, TOMLKitError, TypeError, ValueError) as error:
        raise _not_saved(file, wanted, visible(str(error), 200)) from error
    if not is_right:
        raise _not_saved(file, wanted, "this would change other lines")
    return edited


def _not_saved(file: Path, keys: Iterable[str], why: str) -> ProblemError:
    what = f"{', '.join(keys)} cannot be saved in {_shown(file)}"
    return ProblemError(Problem(what, why, "Change the file by hand"))


def _content(document: Mapping[str, object]) -> Mapping[str, str]:
    """Return the top level for comparisons: unlike values, texts are equal for NaN."""
    return {key: repr(value) for key, value in document.items()}


def _read(file: Path) -> tuple[str, dict[str, Any]]:
    """Return the file's text and values, both empty if there is none. Raises `ProblemError`."""
    try:
        text = read_at_once(file, LARGEST_BYTES).decode()
        return text, tomllib.loads(text) if text else {}
    except FileNotFoundError:
        return "", {}
    except OSError as error:
        remedy = (
            "Check its permissions" if isinstance(error, PermissionError) else REMEDY
        )
        raise _unusable(file, error.strerror or str(error), remedy) from error
    except UnicodeDecodeError as error:
        raise _unusable(file, "it is not UTF-8", REMEDY) from error
    except (ValueError, RecursionError) as error:
        raise _unusable(file, str(error), REMEDY) from error


def _unusable(file: Path, why: str, remedy: str) -> ProblemError:
    what = f"The settings in {_shown(file)} are not used"
    return ProblemError(Problem(what, visible(why), remedy))


def _write(file: Path, text: str) -> None:
    try:
        Path(os.path.realpath(file)).parent.mkdir(
            mode=0o700, parents=True, exist_ok=True
        )
        write_whole(file, text.encode(), mode=0o600)
    except OSError as error:
        what = f"The settings cannot be saved in {_shown(file)}"
        why = error.strerror or str(error)
        raise ProblemError(
            Problem(what, why, "Name another file with --config")
        ) from error


def _shown(value: object) -> str:
    """Return foreign text in one line, cut if it is long."""
    with contextlib.suppress(
        ValueError, RecursionError
    ):  # thousands of digits, arrays in arrays
        return visible(str(value), 120)
    return "…"
