"""Amounts of memory as people type them."""

from __future__ import annotations

import pytest

from gputop.health.idle_devices import parse_amount

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "of_80_gib"),
    [
        ("20GiB", 20 * GIB),
        ("20G", 20 * GIB),
        ("20 gib", 20 * GIB),
        ("20GB", 20_000_000_000),
        ("512MiB", 512 << 20),
        ("1.5k", 1536),
        ("1T", 1 << 40),
        ("100B", 100),
        ("0G", 0),
        ("80%", 64 * GIB),
        ("100 %", 80 * GIB),
        ("12.5%", 10 * GIB),
        ("99.999%", 85_898_486_927),
        ("0.000001%", 859),
    ],
)
def test_an_amount(text: str, of_80_gib: int) -> None:
    assert parse_amount(text).bytes_of(80 * GIB) == of_80_gib


@pytest.mark.parametrize(
    "text",
    ["", "20", "GiB", "-1G", "1e3G", "20iB", "101%", "20 PiB", "1_0G", "٢G", "nan%", "1G 2G"],
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an amount of memory: .* such as 20GiB"):
        parse_amount(text)
