"""Which GPUs are shown: words such as `rack=r3 pod~train`, all of which have to be true."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from fnmatch import translate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gputop.fleet.model import Gpu

    Test = Callable[[str], bool]

_WORD = re.compile(r"([^\s=!~]*)(!=|!~|=|~)(\S*)")
_OWN: Mapping[str, Callable[[Gpu], str]] = {
    "host": lambda gpu: gpu.host,
    "gpu": lambda gpu: gpu.index,
    "index": lambda gpu: gpu.index,
    "model": lambda gpu: gpu.name,
    "uuid": lambda gpu: gpu.uuid,
}
"""What can be asked of a GPU besides its labels."""
EXAMPLE = "rack=r3 pod~train host!=node7"


class Filter:
    """What was typed, as far as it is understood; without a word every GPU passes."""

    def __init__(self, text: str, names: Collection[str], *, unfinished: bool = False) -> None:
        """`names` are the labels that there are; `unfinished` is while it is being typed.

        Then a last word that may become the name of a label leaves nobody out yet.
        """
        self.refused = ""
        """What is wrong with the first word that is no filter, and what is right."""
        self._tests: list[Callable[[Gpu], bool]] = []
        words = text.split()
        if unfinished and words and any(name.startswith(words[-1]) for name in (*names, *_OWN)):
            words.pop()
        for word in words:
            try:
                self._tests.append(_test(word, names))
            except ValueError as error:
                self.refused = self.refused or str(error)

    @property
    def leaves_out(self) -> bool:
        """Whether there may be GPUs that do not pass."""
        return bool(self._tests)

    def passing(self, gpus: Sequence[Gpu]) -> list[int]:
        """The numbers of those that pass."""
        if not self._tests:
            return [*range(len(gpus))]
        return [n for n, gpu in enumerate(gpus) if all(test(gpu) for test in self._tests)]


def _test(word: str, names: Collection[str]) -> Callable[[Gpu], bool]:
    """Of one word; raises `ValueError` with what is right."""
    match = _WORD.fullmatch(word)
    if match is None:
        if any(sign in word for sign in "=!~"):
            raise ValueError(f"{word} is no filter. Right is {EXAMPLE}")
        return _anywhere(word.casefold())
    name, sign, value = match.groups()
    if not name:
        raise ValueError(f"{word} names no label. Right is {EXAMPLE}")
    if name not in _OWN and name not in names:
        known = [*sorted(names), *_OWN]
        near = get_close_matches(name, known, 1)
        rest = f"is it {near[0]}?" if near else f"there are {', '.join(known)}"
        raise ValueError(f"No label {name}: {rest}")
    if not value:  # it is still being typed
        return lambda _: True
    passes = _contains(value) if sign in ("~", "!~") else _is(value)
    denied = sign.startswith("!")
    of = _OWN.get(name) or (lambda gpu: gpu.labels.get(name, ""))
    return lambda gpu: passes(of(gpu)) != denied


def _anywhere(wanted: str) -> Callable[[Gpu], bool]:
    """In one text of all: of ten thousand GPUs each by itself takes three times as long."""

    def passes(gpu: Gpu) -> bool:
        texts = (gpu.host, gpu.name, gpu.uuid, *gpu.labels.values())
        return wanted in "\n".join(texts).casefold()

    return passes


def _contains(value: str) -> Test:
    wanted = value.casefold()
    return lambda text: wanted in text.casefold()


def _is(value: str) -> Test:
    """As it is, or with `*` for anything."""
    if not any(sign in value for sign in "*?["):
        return lambda text: text == value
    pattern = re.compile(translate(value))
    return lambda text: pattern.match(text) is not None
