import sys
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import get_character_cell_size
from wcwidth import wcwidth

from gputop.text import (
    ABSENT,
    age,
    brief,
    count,
    cut,
    duration,
    fit_columns,
    fold_list,
    number,
    percentage,
    quantity,
    short_name,
    size,
    tflops,
    throughput,
    used_of,
    visible,
    watts_of,
)

KIB, MIB, GIB, TIB = (1 << shift for shift in (10, 20, 30, 40))
ANY_TEXT = st.text(st.characters(codec=None))
TEXTS: dict[Callable[[Any], str], list[tuple[Any, str]]] = {
    size: [
        (None, ABSENT),
        (0, "0 B"),
        (0.3, "<1 B"),
        (999.4, "999 B"),
        (1000, "0.98 KiB"),
        (9.99 * KIB, "9.99 KiB"),
        (99.96 * KIB, "100 KiB"),
        (1000 * KIB, "0.98 MiB"),
        (512 * MIB, "512 MiB"),
        (71.24 * GIB, "71.2 GiB"),
        (1.5 * TIB, "1.50 TiB"),
        (-3 * GIB, "-3.00 GiB"),
    ],
    number: [
        (None, ABSENT),
        (0, "0"),
        (0.004, "<0.01"),
        (1980, "1980"),
        (71.24, "71.2"),
        (-9.996, "-10.0"),
    ],
    brief: [
        (0.0, "0 ns"),
        (999.4e-9, "999 ns"),
        (999.9e-9, "1 µs"),
        (3.124e-6, "3.12 µs"),
        (0.0045, "4.5 ms"),
        (0.99996, "1 s"),
        (1234.5, "1234 s"),
    ],
    tflops: [
        (None, ABSENT),
        (1e-7, "<0.00001"),
        (0.00999, "0.00999"),
        (0.009996, "0.0100"),
        (0.312, "0.312"),
        (0.9996, "1.00"),
        (71.24, "71.2"),
        (1979, "1979"),
    ],
    throughput: [
        (None, f"{ABSENT} TFLOP/s"),
        (0.0834, "83.4 GFLOP/s"),
        (0.09996, "0.100 TFLOP/s"),
        (789, "789 TFLOP/s"),
    ],
    age: [
        (9.94, "9.9 s"),
        (10, "10 s"),
        (125, "2:05"),
    ],
    duration: [
        (0, "0 s"),
        (8, "8 s"),
        (59.6, "1:00"),
        (125, "2:05"),
        (3599.6, "1:00:00"),
        (90_061, "25:01:01"),
    ],
    short_name: [
        ("NVIDIA H100 80GB HBM3", "H100 80GB HBM3"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("Tesla T4", "T4"),
        ("", ""),
    ],
    visible: [
        ("python train.py --lr 1e-4", "python train.py --lr 1e-4"),
        ("[red]x[/red] %s {y} <b>", "[red]x[/red] %s {y} <b>"),
        ("\x1b[2J\x1b]0;title\x07", "␛[2J␛]0;title␇"),
        ("a\tb\nc\r\0", "a␉b␊c␍␀"),
        ("\x85\x9b31m", "⟨0085⟩⟨009b⟩31m"),
        ("abc\u202etxt.exe", "abc⟨202e⟩txt.exe"),
        ("\u2066\u2069\u200f\u200b\u200d\ufeff", "⟨2066⟩⟨2069⟩⟨200f⟩⟨200b⟩⟨200d⟩⟨feff⟩"),
        ("e\u0301", "e⟨0301⟩"),
        ("\u3164\uffa0\u1160", "⟨3164⟩⟨ffa0⟩⟨1160⟩"),
        ("caf\udce9", "caf⟨e9⟩"),
        ("\U000e0041\U0010fffd", "⟨e0041⟩⟨10fffd⟩"),
        ("a\u00a0b", "a⟨00a0⟩b"),
        ("\x7f" * 5000, "␡" * 4096),
    ],
    percentage: [
        (None, ABSENT),
        (0, "0 %"),
        (0.04, "<1 %"),
        (0.51, "1 %"),
        (37.4, "37 %"),
        (99.5, ">99 %"),
        (99.97, ">99 %"),
        (100, "100 %"),
        (140.2, "140 %"),
        (-0.2, ">-1 %"),
    ],
}


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (quantity(None, " W"), ABSENT),
        (quantity(612.4, " W"), "612 W"),
        (quantity(0, " %"), "0 %"),
        (quantity(0.3, " W"), "<1 W"),
        (quantity(12.34, " s", 1), "12.3 s"),
        (quantity(0.04, " %", 1), "<0.1 %"),
        (percentage(0.04, digits=1), "<0.1 %"),
        (percentage(3, digits=1), "3 %"),
        (percentage(3.04, digits=1), "3.0 %"),
        (percentage(99.96, digits=1), ">99.9 %"),
        (number(0.3, whole=True), "<1"),
        (watts_of(0.3, 700.0), "<1/700 W"),
        (watts_of(699.7, 700.0), "700/700 W"),
        (count(1, "host"), "1 host"),
        (count(10_000, "host"), "10,000 hosts"),
        (fold_list(["a", "b", "c"]), "a, b, c"),
        (fold_list(["a", "b", "c", "d", "e"]), "a, b, c and 2 more"),
    ],
)
def test_a_value_with_an_option_is_shown_as(shown: str, expected: str) -> None:
    assert shown == expected


@pytest.mark.parametrize(
    ("function", "value", "shown"),
    [(function, value, shown) for function, rows in TEXTS.items() for value, shown in rows],
)
def test_a_value_is_shown_as(function: Callable[[Any], str], value: Any, shown: str) -> None:
    assert function(value) == shown


@pytest.mark.parametrize(
    ("text", "room", "shown"),
    [
        ("abcde", 5, "abcde"),
        ("abcde", 4, "abc…"),
        ("abcde", 1, "…"),
        ("abcde", 0, ""),
        ("abcde", -1, ""),
        ("宽宽", 4, "宽宽"),
        ("宽宽", 3, "宽…"),
        ("宽宽", 2, "…"),
    ],
)
def test_a_text_is_cut_to_its_columns(text: str, room: int, shown: str) -> None:
    assert cut(text, room) == shown


def test_as_many_columns_are_kept_as_fit_with_what_is_to_stay_free() -> None:
    assert fit_columns("abc", 4, lambda _: 2) == ["a", "b"]
    assert fit_columns("abc", 4, lambda _: 2, lambda _: 1) == ["a"]
    assert fit_columns("abc", 1, lambda _: 2) == []


def inert(text: str) -> bool:
    """Printable, encodable, and one or two cells wide wherever it is drawn."""
    text.encode()
    return all(
        c.isprintable()
        and not unicodedata.category(c).startswith("C")
        and unicodedata.bidirectional(c) not in {"LRE", "RLE", "LRO", "RLO", "PDF"}
        and wcwidth(c) > 0
        and get_character_cell_size(c) > 0
        for c in text
    )


@given(ANY_TEXT)
def test_visible_text_is_inert_and_stays_as_it_is(text: str) -> None:
    shown = visible(text)
    assert inert(shown)
    assert visible(shown) == shown


@pytest.mark.parametrize(
    ("used", "total", "shown"),
    [
        (71.24 * 2**30, 79.6 * 2**30, "71.2/79.6 GiB"),
        (0, 79.6 * 2**30, "0.0/79.6 GiB"),
        (1, 79.6 * 2**30, "1B/79.6 GiB"),
        (4 * 2**20, 79.6 * 2**30, "4.0M/79.6 GiB"),
        (972 * 2**20, 79.6 * 2**30, "972M/79.6 GiB"),
        (1000 * 2**20, 79.6 * 2**30, "1.0/79.6 GiB"),
        (79.62 * 2**30, 79.647 * 2**30, ">79.5/79.6 GiB"),
        (79.647 * 2**30, 79.647 * 2**30, "79.6/79.6 GiB"),
        (3 * 2**20, 4.75 * 2**30, "3.0M/4.75 GiB"),
        (1.125 * 2**40, 1.25 * 2**40, "1.12/1.25 TiB"),
        (99.9 * 2**30, 141 * 2**30, "99.9/141 GiB"),
        (99.96 * 2**30, 141 * 2**30, "100/141 GiB"),
        (10.4 * 2**20, 79.6 * 2**30, "10M/79.6 GiB"),
        (0.0996 * 2**30, 1.5 * 2**30, "0.10/1.50 GiB"),
        (512, 999, "512/999 B"),
        (300, 5 * 2**10, "0.29/5.00 KiB"),
        (40 * 2**20, 50 * 2**20, "40.0/50.0 MiB"),
        (2**30, None, "1.00 GiB"),
        (None, 2**30, "–"),
    ],
)
def test_a_part_of_memory_has_the_decimals_of_the_whole(
    used: float | None, total: float | None, shown: str
) -> None:
    assert used_of(used, total) == shown


def test_no_character_of_unicode_is_left_alive() -> None:
    alive = [c for c in map(chr, range(sys.maxunicode + 1)) if visible(c) == c]
    assert [hex(ord(c)) for c in alive if "\ud800" <= c <= "\udfff" or not inert(c)] == []
