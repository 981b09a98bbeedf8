"""Amounts of memory as people type them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.health.idle_devices import Amount, parse_amount

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "of_80_gib", "shown"),
    [
        ("20GiB", 20 * GIB, "20.0 GiB"),
        ("20G", 20 * GIB, "20.0 GiB"),
        ("20 gib", 20 * GIB, "20.0 GiB"),
        ("20GB", 20_000_000_000, "18.6 GiB"),
        ("512MiB", 512 << 20, "512 MiB"),
        ("1.5k", 1536, "1.50 KiB"),
        ("1T", 1 << 40, "1.00 TiB"),
        ("100B", 100, "100 B"),
        ("0G", 0, "0 B"),
        ("80%", 64 * GIB, "80 %"),
        ("100 %", 80 * GIB, "100 %"),
        ("12.5%", 10 * GIB, "12.5 %"),
        ("99.999%", 85_898_486_927, "99.999 %"),
        ("0.000001%", 859, "0.000001 %"),
    ],
)
def test_an_amount(text: str, of_80_gib: int, shown: str) -> None:
    amount = parse_amount(text)
    assert (amount.bytes_of(80 * GIB), str(amount)) == (of_80_gib, shown)


@pytest.mark.parametrize(
    "text",
    ["", "20", "GiB", "-1G", "1e3G", "20iB", "101%", "20 PiB", "1_0G", "٢G", "nan%", "1G 2G"],
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an amount of memory: .* such as 20GiB"):
        parse_amount(text)


@given(st.text())
def test_any_text_is_an_amount_or_refused(text: str) -> None:
    try:
        amount = parse_amount(text)
    except ValueError:
        return
    assert isinstance(amount, Amount)
    assert amount.bytes_of(GIB) >= 0
