"""Mask secrets in environment variables and command lines, by name and by shape.

This protects against glances and careless sharing. It is no barrier: a secret without a typical
shape, under a neutral name, is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

MASK = "********"
"""Replacement of every secret. It does not reveal the length."""

LONGEST = 8192
"""Most characters to search, because some patterns take quadratic time."""

_ALWAYS = re.compile(
    r"SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|WEBHOOK|AUTHORIZATION|CONN(?:ECTION)?_?STR"
    r"|(?<!COM)(?<!BY)PASS(?:_|$)|PWD(?:_|$)|(?:^|_)(?:PAT|AUTH|SIG|SIGNATURE|DSN|JWT|SAS)(?:_|$)"
)
"""Names whose values are always secret, in upper case, with `_` for `-` and `.`."""
_MOSTLY = re.compile(r"TOKEN(?!I[SZ])|KEYS?(?:_|$)")
"""Names that can also be settings, such as `--max-tokens 4096`."""
_SETTING = re.compile(
    r"[\d.,+-]{0,12}|true|false|yes|no|on|off|none|auto", re.IGNORECASE
)
_HARMLESS = {"PWD", "OLDPWD", "SSH_AUTH_SOCK", "XAUTHORITY"}
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")

_NAMES = r"(?:[\w-]*(?:password|passwd|pwd|passphrase|secret|api[_-]?key|access_?key|account_?key)"
_NAMES += r"|shared_?access_?(?:key|signature)|sig|signature|(?:access_|auth_|id_)?token)"
_HEADERS = (
    r"(?:(?:proxy-)?authorization|(?:set-)?cookie|x-[\w-]{0,40}(?:key|token))"
)
_AFTER = r"(?:['\"]?(?:bearer|basic|token)\s+)?[^\s'\"]+"
_SHAPES = (
    # Passwords in URLs, and keys in the place of the user.
    ("://", r"(://[^/\s:@]*:)[^/\s@]+(?=@)", rf"\1{MASK}"),
    ("://", r"(://)[^/\s:@]{16,}(?=@)", rf"\1{MASK}"),
    # Headers, then fields of connection strings, queries and programs.
    (":", rf"(?i)\b({_HEADERS}['\"]?\s*:\s*){_AFTER}", rf"\1{MASK}"),
    (
        "",
        rf"(?i)(?<![\w-])({_NAMES}['\"]?\s*[=:]\s*['\"]?)[^\s;&,'\"]+",
        rf"\1{MASK}",
    ),
    ("", r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}", rf"\1 {MASK}"),
    # Keys of services that have a known prefix.
    ("k-", r"\b(?:sk|pk|rk)-[\w-]{16,}", MASK),
    ("k_", r"\b(?:sk|pk|rk)_(?:live|test)_\w{16,}", MASK),
    (
        "",
        r"\b(?:gh[oprsu]_|github_pat_|glpat-|hf_|npm_|pypi-|dop_v1_|shpat_)[\w-]{16,}",
        MASK,
    ),
    ("xox", r"\bxox[abeoprs]-[\w-]{10,}", MASK),
    ("IA", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b", MASK),
    ("AIza", r"\bAIza[\w-]{30,}", MASK),
    ("eyJ", r"\beyJ[\w-]{5,1000}\.[\w-]{5,}(?:\.[\w-]*)?", MASK),
    ("-BEGIN", r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*", MASK),
    ("://", r"(?i)(https?://hooks\.slack\.com/)\S+", rf"\1{MASK}"),
    ("://", r"(?i)(https?://\S{0,200}/(?:api/)?webhooks?/)\S+", rf"\1{MASK}"),
)
"""Text that must occur (it saves compiling most patterns), the pattern, and the replacement."""
# 1000:1000 is a user and a group, not a password.
_LOGIN = re.compile(r"[^:/\s]*:(?!\d+$)\S+")
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*")
_ASSIGNED = re.compile(r"((?:--?)?[A-Za-z_][\w.-]*=)(.+)", re.DOTALL)


def is_secret(name: str, value: str) -> bool:
    """Return True if an environment variable looks like a secret. Only the first 8 KiB count."""
    value = value[:LONGEST]
    return _names_secret(name[:LONGEST], value) or masked_text(value) != value


def masked_text(text: str) -> str:
    """Return the text with everything masked that looks like a secret."""
    for needed, pattern, replacement in _SHAPES:
        if needed in text:
            text = re.sub(pattern, replacement, text)
    return text


def masked_arguments(arguments: Iterable[str]) -> Iterator[str]:
    """Yield a program's arguments, with the values masked that look like secrets.

    Covers `--token=VALUE`, `--token VALUE` and `-u USER:PASSWORD`.
    """
    option = ""
    for argument in arguments:
        assigned = _ASSIGNED.fullmatch(argument)
        if (
            option
            and not argument.startswith("-")
            and _names_secret(option, argument)
        ):
            yield MASK
        elif option in ("-u", "--user", "--proxy-user") and _LOGIN.fullmatch(
            argument
        ):
            yield f"{argument.partition(':')[0]}:{MASK}"
        elif assigned and _names_secret(assigned[1][:-1], assigned[2]):
            yield f"{assigned[1]}{MASK}"
        else:
            yield masked_text(argument)
        option = argument if _OPTION.fullmatch(argument) else ""


def _names_secret(name: str, value: str) -> bool:
    words = re.sub(r"\W", "_", _HUMP.sub("_", name).lstrip("-")).upper()
    if not value or words in _HARMLESS:
        return False
    if _ALWAYS.search(words):
        return True
    return _MOSTLY.search(words) is not None and not _SETTING.fullmatch(value)
