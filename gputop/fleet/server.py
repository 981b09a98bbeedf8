"""The Prometheus server: its URL, credentials from the environment, and `--match`."""

from __future__ import annotations

import base64
import netrc
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from gputop.agent.problem import Problem, ProblemError
from gputop.text import visible

PREFIX = "GPUTOP_PROMETHEUS_"
TOKEN_FILE, USER, PASSWORD = (
    f"{PREFIX}TOKEN_FILE",
    f"{PREFIX}USER",
    f"{PREFIX}PASSWORD",
)
CERT, KEY, CA = f"{PREFIX}CERT", f"{PREFIX}KEY", f"{PREFIX}CA"
HEADERS = f"{PREFIX}HEADERS"
TENANT = "X-Scope-OrgID"
"""Header that names the tenant for Mimir, Cortex and Loki."""
AUTHORIZATION = "Authorization"
EXAMPLE = "http://prometheus:9090"
_HEADER = re.compile(
    r"([\w!#$%&'*+.^`|~-]+)[ \t]*:[ \t]*([!-~](?:[ -~]*[!-~])?)", re.ASCII
)
_CLIENT_HEADERS = {
    "accept",
    "accept-encoding",
    "connection",
    "content-length",
    "content-type",
    "host",
    "transfer-encoding",
}
LONGEST_MATCH = 2000
_MATCHER = (
    r"\s*(?!__name__\b)[a-zA-Z_][a-zA-Z0-9_]*\s*(?:=~|!~|!=|=)\s*"
    r"""(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')\s*"""
)
_MATCHERS = re.compile(rf"{_MATCHER}(?:,{_MATCHER})*")


def parse_url(text: str) -> str:
    """Return the URL without a final slash. Raises `ValueError` without repeating a password."""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = urlsplit(""), None
    if "@" in text:
        raise ValueError(
            "a user or password in a URL is visible to everyone who sees the command line. "
            f"Leave out the part before the @, and set {USER} and {PASSWORD}."
        )
    if (
        parts.scheme not in ("http", "https")
        or not host
        or not text.isprintable()
        or re.search("[ ?#]", text)
    ):
        raise ValueError(
            f"{visible(text, 80)!r} is not the URL of a server: give {EXAMPLE}, "
            "without ? and #."
        )
    return text.rstrip("/").removesuffix("/api/v1")


def parse_match(text: str) -> str:
    """Return label matchers without their braces, or "". Raises `ValueError`."""
    inner = text.strip()
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1].strip()
    inner = inner.removesuffix(",").rstrip()
    if inner and (
        len(inner) > LONGEST_MATCH or not _MATCHERS.fullmatch(inner)
    ):
        raise ValueError(
            f'{inner[:60]!r} is not a list of label matchers, NAME="VALUE" with a comma between, '
            f"of {LONGEST_MATCH} characters at most and without __name__: give them as in "
            """--match 'cluster="a",rack=~"r1.*"'."""
        )
    return inner


@dataclass(frozen=True, slots=True)
class PrometheusServer:
    """A server with the HTTP API of Prometheus."""

    url: str
    """URL without secrets and without a final slash."""
    token_file: Path | None = None
    user: str | None = None
    password: str = field(default="", repr=False)
    certificate: Path | None = None
    key: Path | None = None
    authorities: Path | None = None
    """File of trusted authorities; None for the system's."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def from_environment(
        cls,
        url: str,
        environment: Mapping[str, str],
    ) -> Self:
        """Return a server with its credentials. Raises `ValueError` if they conflict."""
        server = cls(
            url=parse_url(url),
            token_file=_path(TOKEN_FILE, environment),
            user=environment.get(USER) or None,
            password=environment.get(PASSWORD, ""),
            certificate=_path(CERT, environment),
            key=_path(KEY, environment),
            authorities=_path(CA, environment),
            headers=parse_headers(environment.get(HEADERS, "")),
        )
        ways = [name for name in (USER, TOKEN_FILE) if environment.get(name)]
        if server.has_header(AUTHORIZATION):
            ways.append(HEADERS)
        if len(ways) > 1:
            raise ValueError(
                f"{' and '.join(ways)} are two ways to sign in. Unset one of them."
            )
        if server.key and not server.certificate:
            raise ValueError(
                f"{KEY} needs a certificate. Name it with {CERT}."
            )
        return server

    def request_headers(self) -> Mapping[str, str]:
        """Return the headers of a request. A token is read anew, because it may change.

        Raises `ProblemError`.
        """
        if self.has_header(AUTHORIZATION):
            return self.headers
        if self.token_file is not None:
            token = _token(self.token_file)
            return {AUTHORIZATION: f"Bearer {token}", **self.headers}
        login = f"{self.user}:{self.password}"
        if self.user is None:
            login = _netrc_login(urlsplit(self.url).hostname or "")
        if not login:
            return self.headers
        encoded = base64.b64encode(login.encode()).decode("ascii")
        return {AUTHORIZATION: f"Basic {encoded}", **self.headers}

    def has_header(self, name: str) -> bool:
        return name.lower() in map(str.lower, self.headers)


def _path(name: str, environment: Mapping[str, str]) -> Path | None:
    """Return the path in a variable, or None if it is not set."""
    if not environment.get(name):
        return None
    return Path(environment[name])


def parse_headers(text: str) -> dict[str, str]:
    """Return headers written as `NAME: VALUE`, separated by commas or line ends.

    Raises `ValueError` without repeating a value, because it may be secret.
    """
    found: dict[str, str] = {}
    entries = text.splitlines() if "\n" in text else text.split(",")
    for number, entry in enumerate(filter(None, map(str.strip, entries)), 1):
        match = _HEADER.fullmatch(entry)
        if match is None or match[1].lower() in _CLIENT_HEADERS:
            raise ValueError(
                f"header {number} in {HEADERS} is not NAME: VALUE in ASCII, or gputop itself sets "
                f"it. Give it as in '{TENANT}: TENANT', several separated by commas."
            )
        found[match[1]] = match[2]
    return found


def _token(path: Path) -> str:
    """Return the token in a file. Blanks around it are allowed."""
    shown = visible(str(path))
    try:
        token = path.read_bytes().strip()
    except OSError as error:
        raise ProblemError(
            Problem(
                "No token",
                f"{shown} cannot be read, {error.strerror}",
                f"Check it, or unset {TOKEN_FILE}",
            )
        ) from None
    # The client's error would reveal a token that is not valid in a header.
    if not re.fullmatch(rb"[!-~]+", token):
        raise ProblemError(
            Problem(
                "No token",
                f"{shown} does not contain one line of ASCII",
                "Write only the token into it",
            )
        )
    return token.decode("ascii")


def _netrc_login(host: str) -> str:
    """Return `user:password` of a host from $NETRC or ~/.netrc; "" if it is not in there."""
    try:
        found = netrc.netrc(os.environ.get("NETRC")).authenticators(host)
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError, netrc.NetrcParseError):
        # Some error messages quote the invalid text, which may be a password.
        raise ProblemError(
            Problem(
                "The netrc file is not used",
                "it cannot be read",
                "Check it, or set NETRC=/dev/null",
            )
        ) from None
    return "" if found is None else f"{found[0]}:{found[2] or ''}"
