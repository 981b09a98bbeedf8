"""Steps of a training, read from its output: progress bars, logged lines and JSON lines."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

LONGEST_LINE = 4096
LONGEST_TEXT = 600
"""Characters of a line that are searched, unless it is JSON."""
# Quantifiers such as `++` do not backtrack: a hostile line would take minutes.
_NUMBER = r"[-+]?(?:\d++(?:\.\d*+)?(?:[eE][-+]?\d++)?|nan|inf)"
_COUNT = r"\d+(?:\.\d+)?[kMG]?"
_TQDM = re.compile(
    rf"(?P<name>.*?):?\s*+\b\d++%\|[^|]*\|\s*(?P<step>{_COUNT})/(?P<total>{_COUNT})\s*"
    r"\[[^,\]]*,(?P<rest>[^\]]*)\]?(?P<tail>.*)",
)
"""A bar of tqdm with a total: `Epoch 1:  45%|████▌     | 450/1000 [00:12<00:15, 36.2it/s, …]`."""
_TQDM_ENDLESS = re.compile(
    rf"(?P<name>.*?):?\s*\b(?P<step>{_COUNT})it \[[\d:]+,(?P<rest>[^\]]*)\]",
)
"""A bar of tqdm without a total: `450it [00:12, 36.2it/s]`."""
_RICH = re.compile(
    rf"(?P<name>[^━╸╺╴╶─]*+)[━╸╺╴╶─]{{3,}}+\s*(?P<step>{_COUNT})/(?P<total>{_COUNT})\s+(?P<rest>.*)",
)
"""A bar of rich, as Lightning draws it: `Epoch 0/9 ━━━━ 12/100 0:00:01 • …`."""
_KERAS = re.compile(
    rf"(?P<name>)(?P<step>{_COUNT})/(?P<total>{_COUNT})\s+[━─]{{3,}}+(?P<rest>.*)",
)
"""A bar of Keras: `120/1000 ━━━━ 12s 34ms/step - loss: 2.3`."""
_BARS = (
    (re.compile(r"%\|"), _TQDM),
    (re.compile(r"it \["), _TQDM_ENDLESS),
    (re.compile("[━╸╺╴╶─]"), _RICH),
    (re.compile("[━─]"), _KERAS),
)
"""Patterns of bars, each after a cheaper one that most lines do not match."""
_DIGIT = re.compile(r"\d")
_LOGGED = re.compile(
    r"(?<![\w/.])(?:global[_ ]?)?(?:steps?|iter(?:ation)?s?|batch|(?:num_)?updates?)\b[][\s:=#]*"
    r"(?P<step>\d+)(?![\d.]*(?:it/s|s\b))(?:\s*(?:/|of)\s*(?P<total>\d+))?",
    re.IGNORECASE,
)
"""A logged line: `step 120 loss 2.31`, `Iteration: 120/1000`, `iter 120: loss 2.3, time 35 ms`."""
_BRACKET = re.compile(r"\[\s*(?P<step>\d+)\s*/\s*(?P<total>\d+)\s*\]")
"""A step of a total in brackets, as in the examples of torchvision: `Epoch: [0]  [120/1000]`."""
_VALUE = re.compile(
    rf"(?<![\w/])(?P<name>[A-Za-z][\w/]{{0,60}}+)['\"]?\s*+[:=]?\s*+['\"]?"
    rf"(?P<value>{_NUMBER})(?![\w/%:]|\.\w|,\d)",
    re.IGNORECASE,
)
_LOSS = re.compile(r"(?:^|[/_])loss$|^loss(?:$|[/_])", re.IGNORECASE)
_LOSS_IN_NAME = re.compile(r"\bloss\b", re.IGNORECASE)
_STEP_KEYS = ("global_step", "step", "iteration", "iter", "update", "batch")
_TOTAL_KEYS = ("total_steps", "max_steps", "total")
_NO_TRAINING = re.compile(
    r"\b(?:val|valid|validation|validating|eval|evaluat\w+|test\w*|predict\w*|sanity\w*|"
    r"download\w*|load\w*|map|token\w*|filter|generating|fetching|extracting)\b",
    re.IGNORECASE,
)
"""Names of bars that do not count training steps."""
_SCALE = {"k": 1e3, "M": 1e6, "G": 1e9}


@dataclass(frozen=True)
class StepReading:
    """Progress of a training in one line of its output."""

    counter: str
    """Name of the counter. A training may count epochs, steps and batches side by side."""
    step: int | None = None
    total: int | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    """Logged numbers by name, such as `loss`."""

    @property
    def loss(self) -> float | None:
        """Value of `loss`, or of the first name with this word, such as `train/loss`."""
        if "loss" in self.values:
            return self.values["loss"]
        for name, value in self.values.items():
            if _LOSS.search(name):
                return value
        return None


OTHER_BAR = StepReading("other bar")
"""Something else goes on, such as an evaluation."""
Parse = Callable[[str], StepReading | None]


def pattern_parser(pattern: str) -> Parse:
    """Return a parser for a regular expression with the group `step`, or raise `ValueError`.

    The group `total` is optional. Other groups, such as `loss`, are logged values.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(
            f"{pattern!r} is not a regular expression: {error}.",
        ) from None
    if "step" not in compiled.groupindex:
        raise ValueError(
            f"{pattern!r} has no group `step`. Add one, such as '(?P<step>[0-9]+)'.",
        )

    def parse(line: str) -> StepReading | None:
        match = compiled.search(line)
        if match is None or match["step"] is None:
            return None
        groups = match.groupdict()
        step, total = (
            _whole(groups.pop("step")),
            _whole(groups.pop("total", None)),
        )
        values = {}
        for name, text in groups.items():
            value = _float(text)
            if value is not None:
                values[name] = value
        return StepReading("pattern", step, total, values)

    return parse


def parse_line(line: str) -> StepReading | None:
    """Return the steps and logged values of a line, `OTHER_BAR`, or None."""
    line = line[:LONGEST_LINE].strip()
    if line.startswith("{"):
        return _json(line) or _python_dict(line)
    line = line[:LONGEST_TEXT]
    if _DIGIT.search(line) is None:
        return None
    for sign, find in _BARS:
        if sign.search(line) is None:
            continue
        bar = find.match(line)
        if bar is not None:
            return _bar(bar)
    return _logged(line)


def _json(line: str) -> StepReading | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    values = dict(_numbers(found))
    step = _first(values, _STEP_KEYS)
    total = _first(values, _TOTAL_KEYS)
    return _unless_empty("json", step, total, values)


def _numbers(found: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in found.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield name, float(value)


def _first(values: dict[str, float], names: tuple[str, ...]) -> int | None:
    """Remove these names from the values. Return the first value as a whole number."""
    found = None
    for name in names:
        value = values.pop(name, None)
        if found is None and value is not None and math.isfinite(value):
            found = int(value)
    return found


def _python_dict(line: str) -> StepReading | None:
    """Read a line of the Trainer of transformers: `{'loss': 2.31, 'epoch': 0.5}`."""
    values = _values(line)
    if "loss" not in values:
        return None
    return _unless_empty("log", None, None, values)


def _bar(bar: re.Match[str]) -> StepReading | None:
    name = re.sub(r"\d+", "", bar["name"]).strip(" :|[]-")
    if _NO_TRAINING.search(name):
        return OTHER_BAR
    groups = bar.groupdict()
    values = _values(" ".join((groups["rest"], groups.get("tail") or "")))
    values.pop("v_num", None)
    if _LOSS_IN_NAME.search(name):  # as in torchtune's description of a bar
        values |= _values(bar["name"])
    total = _whole(groups.get("total"))
    # The Trainer of transformers has bars without names: one of the training,
    # and shorter ones of its evaluations.
    words = [word for word in ("bar", name, f"{total or ''}") if word]
    return StepReading(
        " ".join(words),
        _whole(groups["step"]),
        total,
        values,
    )


def _logged(line: str) -> StepReading | None:
    found = _LOGGED.search(line)
    values = _values(line)
    if found is None and any(_LOSS.search(name) for name in values):
        found = _BRACKET.search(line)
    for name in (*_STEP_KEYS, "steps", "epoch", *_TOTAL_KEYS):
        values.pop(name, None)
    if found is None:
        # Without a step the line counts only if it has a loss, as at the end of an epoch.
        if not any(_LOSS.search(name) for name in values):
            return None
        return StepReading("log", None, None, values)
    if _NO_TRAINING.search(line[: found.start()]):
        return None
    return StepReading(
        "log",
        int(found["step"]),
        _whole(found["total"]),
        values,
    )


def _values(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for match in _VALUE.finditer(text):
        value = _float(match["value"])
        if value is not None:
            found.setdefault(match["name"].lower(), value)
    return found


def _unless_empty(
    counter: str,
    step: int | None,
    total: int | None,
    values: Mapping[str, float],
) -> StepReading | None:
    reading = StepReading(counter, step, total, values)
    if step is None and reading.loss is None:
        return None
    return reading


def _float(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def _whole(text: str | None) -> int | None:
    if not text:
        return None
    scale = _SCALE.get(text[-1])
    if scale is not None:
        return int(float(text[:-1]) * scale)
    return int(float(text))
