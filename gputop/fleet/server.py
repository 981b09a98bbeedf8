"""The Prometheus server: its URL, credentials from the environment, and `--match`."""

from __future__ import annotations

import base64
import netrc
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gputop.agent.problem import Problem, ProblemError
from gputop.text import visible

if TYPE_CHECKING:
    from typing import Self

PREFIX = "GPUTOP_PROMETHEUS_"
TOKEN_FILE, USER, PASSWORD = f"{PREFIX}TOKEN_FILE", f"{PREFIX}USER", f"{PREFIX}PASSWORD"
CERT, KEY, CA = f"{PREFIX}CERT", f"{PREFIX}KEY", f"{PREFIX}CA"
HEADERS = f"{PREFIX}HEADERS"
TENANT = "X-Scope-OrgID"
"""Header that names the tenant for Mimir, Cortex and Loki."""
AUTHORIZATION = "Authorization"
EXAMPLE = "http://prometheus:9090"
LONGEST_TOKEN = 1 << 16
_HEADER = re.compile(
    r"([\w!#$%&'*+.^`|~-]+)[ \t]*:[ \t]*([!-~](?:[ -~]*[!-~])?)", re.ASCII
)
_CLIENT_HEADERS = {
    *(
        "accept",
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "host",
    ),
    "transfer-encoding",
}
MATCH_EXAMPLE = """--match 'cluster="a",rack=~"r1.*"'"""
LONGEST_MATCH = 2000
_MATCHER = re.compile(
    r"""\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')\s*"""
)
_NAME = "__name__"


def parse_url(text: str) -> str:
    """Return the URL without a final slash; raises `ValueError`, which never repeats a password."""
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
        or " " in text
    ):
        raise ValueError(
            f"{visible(text, 80)!r} is not the URL of a server: give {EXAMPLE}."
        )
    if parts.query or parts.fragment:
        raise ValueError(
            "the URL of a server ends before ? and #: give the part before /api/v1, "
            f"such as {EXAMPLE}."
        )
    return text.rstrip("/").removesuffix("/api/v1")


@dataclass(frozen=True, slots=True)
class PrometheusServer:
    """A server with the HTTP API of Prometheus."""

    url: str
    """URL without secrets and without a final slash."""
    token_file: Path | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    certificate: Path | None = None
    key: Path | None = None
    authorities: Path | None = None
    """Certificates of trusted authorities; None for those of the system."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def from_environment(cls, url: str, environment: Mapping[str, str]) -> Self:
        """Return a server with its credentials; raises `ValueError` if they conflict."""
        user, token = environment.get(USER), environment.get(TOKEN_FILE)
        if user and token:
            raise ValueError(
                f"{USER} and {TOKEN_FILE} are two ways to sign in. Unset one of them."
            )
        if environment.get(KEY) and not environment.get(CERT):
            raise ValueError(
                f"{KEY} is the key of a certificate. Name that with {CERT}."
            )

        def path(name: str) -> Path | None:
            if not environment.get(name):
                return None
            try:
                return Path(environment[name]).expanduser()
            except RuntimeError:
                raise ValueError(
                    f"{name} is in a home folder that is not known. Give the whole path."
                ) from None

        server = cls(
            url=parse_url(url),
            token_file=path(TOKEN_FILE),
            user=user or None,
            password=environment.get(PASSWORD, "") if user else None,
            certificate=path(CERT),
            key=path(KEY),
            authorities=path(CA),
            headers=parse_headers(environment.get(HEADERS, "")),
        )
        if (user or token) and server._has(AUTHORIZATION):
            other = USER if user else TOKEN_FILE
            raise ValueError(
                f"{HEADERS} and {other} both set {AUTHORIZATION}. Unset one of them."
            )
        return server

    def authorization(self) -> str | None:
        """Return the header of a request, read again as tokens change; raises `ProblemError`."""
        if self.token_file is not None:
            return f"Bearer {_token(self.token_file)}"
        user, password = self.user, self.password
        if user is None and not self._has(AUTHORIZATION):
            user, password = _netrc_login(urlsplit(self.url).hostname or "") or (
                None,
                None,
            )
        if user is None:
            return None
        return "Basic " + base64.b64encode(f"{user}:{password or ''}".encode()).decode(
            "ascii"
        )

    def _has(self, header: str) -> bool:
        return header.lower() in map(str.lower, self.headers)

    def sign_in(self, said: str, *, signed: bool) -> tuple[str, str]:
        """Return which header a refused request lacks, "" if none, and the remedy.

        `said` is the body of the refusal; `signed` is true if the request had credentials.
        """
        if "org id" in said.lower() or TENANT.lower() in said.lower():
            if self._has(TENANT):
                return "", f"Check {TENANT} in {HEADERS}"
            return TENANT, f"Set {HEADERS}='{TENANT}: TENANT'"
        if self._has(AUTHORIZATION):
            return "", f"Check {AUTHORIZATION} in {HEADERS}"
        ways = f"{TOKEN_FILE}, or {USER} and {PASSWORD}, or ~/.netrc"
        return ("", f"Check {ways}") if signed else (AUTHORIZATION, f"Set {ways}")


def parse_headers(text: str) -> dict[str, str]:
    """Return headers written as `NAME: VALUE`, separated by commas or line ends.

    Raises `ValueError`, which never repeats a value, as that may be secret.
    """
    found: dict[str, str] = {}
    entries = text.splitlines() if "\n" in text else text.split(",")
    for number, entry in enumerate(filter(None, map(str.strip, entries)), 1):
        match = _HEADER.fullmatch(entry)
        if match is None:
            raise ValueError(
                f"header {number} in {HEADERS} is not NAME: VALUE in ASCII. "
                f"Give it as in '{TENANT}: TENANT', several separated by commas."
            )
        name, value = match.groups()
        if name.lower() in _CLIENT_HEADERS:
            raise ValueError(
                f"{name} in {HEADERS} is set by gputop itself. Leave it out."
            )
        found[name] = value
    return found


def _token(path: Path) -> str:
    """Return the token in a file, which may have blanks around it."""
    shown = visible(str(path), 100)
    try:
        with path.open("rb") as file:
            text = file.read(LONGEST_TOKEN + 1)
    except OSError as error:
        why = f"{shown} cannot be read, {error.strerror}"
        raise ProblemError(
            Problem("No token", why, f"Check it, or unset {TOKEN_FILE}")
        ) from None
    token = text.strip()
    # The client's error would show a token that a header cannot hold.
    if (
        not token
        or len(token) > LONGEST_TOKEN
        or not all(0x21 <= byte < 0x7F for byte in token)
    ):
        why = f"{shown} holds no token in one line of ASCII"
        raise ProblemError(Problem("No token", why, "Write the token alone into it"))
    return token.decode("ascii")


def _netrc_login(host: str) -> tuple[str, str] | None:
    """Return user and password of a host from $NETRC or ~/.netrc."""
    try:
        found = netrc.netrc(os.environ.get("NETRC")).authenticators(host)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, netrc.NetrcParseError):
        # Some of their messages quote the bad text, which may be a password.
        remedy = "Check it, or set NETRC=/dev/null"
        raise ProblemError(
            Problem("No use of netrc", "it cannot be read", remedy)
        ) from None
    return None if found is None else (found[0], found[2] or "")


def parse_match(text: str) -> str:
    """Return label matchers without their braces, "" for none; raises `ValueError`."""
    if len(text) > LONGEST_MATCH:
        raise ValueError(
            f"the matchers are longer than {LONGEST_MATCH} characters: give fewer."
        )
    inner = text.strip()
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1].strip()
    inner = inner.removesuffix(",").rstrip()
    found = []
    while inner:
        matcher = _MATCHER.match(inner)
        if matcher is None:
            raise _not_matchers(inner)
        name, operator, value = matcher.groups()
        if name == _NAME:
            raise ValueError(
                f"{_NAME} is the metric's name, which gputop asks for: leave it out."
            )
        found.append(f"{name}{operator}{value}")
        rest = inner[matcher.end() :]
        if rest == "," or rest[:1] not in ("", ","):
            raise _not_matchers(rest)
        inner = rest[1:]
    return ",".join(found)


def _not_matchers(rest: str) -> ValueError:
    return ValueError(
        f'{rest[:60].strip()!r} is no list of label matchers, NAME="VALUE" with a comma between: '
        f"give them as in {MATCH_EXAMPLE}."
    )


def quoted(value: str) -> str:
    """Return text as a PromQL string, whatever is in it."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def one_of(values: list[str]) -> str:
    """Return a PromQL string with a regular expression that matches exactly these values."""
    # RE2 rejects escaped letters, and Python escapes none.
    return quoted("|".join(re.escape(value).replace(r"\ ", " ") for value in values))
