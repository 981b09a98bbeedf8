"""Hostile documents made from real ones: damage to the tree of a JSON document, and to its bytes.

Everything is drawn from one random generator, so a seed gives the same cases on every machine.
"""

import gzip
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

RAW = "@raw:{}@"
"""Stands for a literal that `json.dumps` cannot write."""
LITERALS = (
    *("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1e308", "-1e308", "1e-400", "-0", "-0.0"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "9.3e18", "1e16"),
    *("9" * 400, "9" * 4300, "9" * 5000, "-" + "9" * 400, "0.0005", "-1", "-1.5", "1e15", "101"),
    *("true", "false", "null", "{}", "[]", '""', "[[]]", '{"a":1}', '"NaN"', '"lost"', '"79"'),
    *('"\\ud800"', '"\\udc80\\u0000"', '"\\u001b[31m\\u202e"'),
    *('"1e999"', '"+Inf"', '"1_0"', '" 7 "', '"٣"', '"' + "9" * 5000 + '"', '"0x1"', '"-1"'),
    *("[" * 900 + "]" * 900, '{"a":' * 900 + "1" + "}" * 900),
    *('"' + "x" * 5000 + '"', '"' + "x" * 100_000 + '"', '"' + "\\u202e" * 300 + '"'),
)
NO_JSON = ("01", "1.", "0x10", "tru", '"\x00"', '"\\x"', "[" * 20_000, '{"a":' * 20_000, ",", "")
WORDS = ("lost", "ok", "error", "xid", "GPU-0", "node", "nvml", "vector", "matrix", "a" * 300)
Damage = Callable[[Random, bytes, Sequence[bytes]], bytes]


def tampered(chance: Random, line: bytes, others: Sequence[bytes]) -> bytes:
    document = json.loads(line)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        document = _tamper(chance, document, others)
    text = json.dumps(document, separators=(",", ":"))
    for n, literal in enumerate((*LITERALS, *NO_JSON)):
        text = text.replace(f'"{RAW.format(n)}"', literal)
    return text.encode(errors="surrogatepass")


def _tamper(chance: Random, document: Any, others: Sequence[bytes]) -> Any:
    place, key = _place(chance, document)
    if place is None:
        return _value(chance)
    match chance.randrange(8):
        case 0:
            del place[key]
        case 1 | 2 | 3:
            place[key] = _value(chance)
        case 4:  # a piece of another document, or of this one
            other = json.loads(chance.choice(others)) if chance.random() < 0.5 else document
            source, name = _place(chance, other)
            place[key] = json.loads(json.dumps(other if source is None else source[name]))
        case 5:
            place[key] = chance.choice(([place[key]], {"a": place[key]}, str(place[key])))
        case _ if isinstance(place, dict):
            name = chance.choice((*WORDS, "", "\x1b[31m", "\ud800", *place))
            place[name] = place.pop(key)
        case _:
            place[key:key] = chance.choice(([_value(chance)], place * 2, place * 50))
    return document


def _place(chance: Random, document: Any) -> tuple[Any, Any]:
    """Return a container somewhere in the tree and a key of it; None where there is none."""
    found: tuple[Any, Any] = (None, None)
    inner = document
    while isinstance(inner, dict | list) and inner:
        key = chance.choice([*inner]) if isinstance(inner, dict) else chance.randrange(len(inner))
        found, inner = (inner, key), inner[key]
        if chance.random() < 0.15:
            break
    return found


def _value(chance: Random) -> Any:
    if chance.random() < 0.1:
        return chance.choice(WORDS)
    beyond = len(NO_JSON) if chance.random() < 0.1 else 0
    return RAW.format(chance.randrange(len(LITERALS) + beyond))


def _flipped(chance: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _flip in range(chance.choice((1, 1, 2, 8))):
        at = chance.randrange(8 * len(data))
        changed[at // 8] ^= 1 << at % 8
    return bytes(changed)


def _spliced(chance: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    other = chance.choice(others)
    return data[: chance.randrange(len(data))] + other[chance.randrange(len(other) + 1) :]


ODD = (
    *(b"\n", b"\r", b"\0", b"\xff\xfe", b"\xe5\x90", b"\xed\xa0\x80", b"\xef\xbb\xbf", b'"'),
    *(b"{", b"}", b"\x1f\x8b\x08", b"\n" * 300, b" " * 5000),
)


def _inserted(chance: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice((*ODD, chance.randbytes(8))) + data[at:]


def _repeated(chance: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    begin = chance.randrange(len(data))
    piece = data[begin : begin + chance.choice((1, 10, 200))]
    return data[:begin] + piece * chance.choice((2, 3, 40)) + data[begin:]


def _recoded(chance: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    return data.decode(errors="replace").encode(chance.choice(("utf-16", "utf-32", "utf-8-sig")))


DAMAGES: tuple[Damage, ...] = (
    _flipped,
    _flipped,
    _spliced,
    _inserted,
    _repeated,
    _recoded,
    lambda chance, data, _: data[: chance.randrange(len(data))],
    lambda chance, data, _: data[chance.randrange(len(data)) :],
    lambda chance, data, _: data[: (a := chance.randrange(len(data)))] + data[a + 5 :],
)


def damaged(chance: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    for _ in range(chance.choice((1, 1, 2))):
        if data:
            data = chance.choice(DAMAGES)(chance, data, others)
    return data


def zipped(chance: Random, data: bytes) -> bytes:
    """Return it as gzip of one member or several, half of them damaged or cut off."""
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.choice((0, 0, 1, 3))))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    whole = b"".join(gzip.compress(piece, chance.choice((1, 6)), mtime=0) for piece in pieces)
    if chance.random() < 0.5:
        return whole
    if chance.random() < 0.3:
        return whole + chance.choice((b"\0" * 100, b"x", b"\x1f\x8b\x08", chance.randbytes(40)))
    return damaged(chance, whole, [whole])
