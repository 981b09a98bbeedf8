"""Which Prometheus, and as whom: a URL, and from the environment what is nobody else's business."""

from __future__ import annotations

import base64
import netrc
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gputop.problem import Problem
from gputop.text import visible

if TYPE_CHECKING:
    from typing import Self

PREFIX = "GPUTOP_PROMETHEUS_"
TOKEN_FILE, USER, PASSWORD = f"{PREFIX}TOKEN_FILE", f"{PREFIX}USER", f"{PREFIX}PASSWORD"
CERT, KEY, CA = f"{PREFIX}CERT", f"{PREFIX}KEY", f"{PREFIX}CA"
HEADERS = f"{PREFIX}HEADERS"
TENANT = "X-Scope-OrgID"
"""The header by which Mimir, Cortex and Loki know whose series are asked for."""
AUTHORIZATION = "Authorization"
EXAMPLE = "http://prometheus:9090"
LONGEST_TOKEN = 1 << 16
_HEADER = re.compile(r"([\w!#$%&'*+.^`|~-]+)[ \t]*:[ \t]*([!-~](?:[ -~]*[!-~])?)", re.ASCII)
_OF_CLIENT = {
    *("accept", "accept-encoding", "connection", "content-length", "content-type", "host"),
    "transfer-encoding",
}
"""Headers that the client needs to set itself."""


class CredentialError(Exception):
    """What it is to be asked with cannot be read; `problem` says it without what is secret."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def parse_url(text: str) -> str:
    """The URL without a slash at its end; raises `ValueError`, which never repeats a password."""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = urlsplit(""), None
    if "@" in text:
        raise ValueError(
            "a URL with a user or a password in it is seen by whoever sees the command line. "
            f"Leave out what is before the @, and set {USER} and {PASSWORD}."
        )
    if parts.scheme not in ("http", "https") or not host or not text.isprintable() or " " in text:
        raise ValueError(f"{visible(text, 80)!r} is not the URL of a server: give {EXAMPLE}.")
    if parts.query or parts.fragment:
        raise ValueError(
            "the URL of a server ends before ? and #: give it as far as /api/v1 begins, "
            f"such as {EXAMPLE}."
        )
    return text.rstrip("/").removesuffix("/api/v1")


@dataclass(frozen=True, slots=True)
class Server:
    """A server of Prometheus's HTTP API."""

    url: str
    """Without what is secret, and without a slash at its end."""
    token_file: Path | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    certificate: Path | None = None
    """Of this client, as is the key; None where it shows none."""
    key: Path | None = None
    authorities: Path | None = None
    """Certificates that it is trusted by; None is the system's."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with each request, besides those of the client."""

    @classmethod
    def of(cls, url: str, environment: Mapping[str, str]) -> Self:
        """As the environment says; raises `ValueError` where that contradicts itself."""
        user, token = environment.get(USER), environment.get(TOKEN_FILE)
        if user and token:
            raise ValueError(f"{USER} and {TOKEN_FILE} are two ways to sign in. Unset one of them.")
        if environment.get(KEY) and not environment.get(CERT):
            raise ValueError(f"{KEY} is the key of a certificate. Name that with {CERT}.")
        headers = parse_headers(environment.get(HEADERS, ""))
        if (user or token) and any(name.lower() == "authorization" for name in headers):
            other = USER if user else TOKEN_FILE
            raise ValueError(f"{HEADERS} and {other} both set {AUTHORIZATION}. Unset one of them.")

        def path(name: str) -> Path | None:
            return Path(environment[name]).expanduser() if environment.get(name) else None

        return cls(
            url=parse_url(url),
            token_file=path(TOKEN_FILE),
            user=user or None,
            password=environment.get(PASSWORD, "") if user else None,
            certificate=path(CERT),
            key=path(KEY),
            authorities=path(CA),
            headers=headers,
        )

    def authorization(self) -> str | None:
        """The header of a request, read anew, as tokens change; raises `CredentialError`."""
        if self.token_file is not None:
            return f"Bearer {_token(self.token_file)}"
        user, password = self.user, self.password
        if user is None and not self._has_own_authorization:
            user, password = _of_netrc(urlsplit(self.url).hostname or "") or (None, None)
        if user is None:
            return None
        return "Basic " + base64.b64encode(f"{user}:{password or ''}".encode()).decode("ascii")

    @property
    def _has_own_authorization(self) -> bool:
        return any(name.lower() == "authorization" for name in self.headers)

    def sign_in(self, said: str, challenge: str, *, signed: bool) -> tuple[str, str]:
        """Return which header a refused request lacks, "" if none, and the remedy.

        `said` is the body of the refusal, `challenge` its `WWW-Authenticate`; `signed` is true if
        the request had credentials.
        """
        if "org id" in said.lower() or TENANT.lower() in said.lower():
            if any(name.lower() == TENANT.lower() for name in self.headers):
                return "", f"Check {TENANT} in {HEADERS}"
            return TENANT, f"Set {HEADERS}='{TENANT}: TENANT'"
        if self._has_own_authorization:
            return "", f"Check {AUTHORIZATION} in {HEADERS}"
        if self.token_file is not None:
            return "", f"Check the token in {visible(str(self.token_file), 100)}"
        if self.user is not None:
            return "", f"Check {USER} and {PASSWORD}"
        if signed:
            return "", "Check ~/.netrc"
        scheme = challenge.partition(" ")[0].lower()
        ways = {"bearer": f"Set {TOKEN_FILE}", "basic": f"Set {USER} and {PASSWORD}, or ~/.netrc"}
        either = f"Set {TOKEN_FILE}, or {USER} and {PASSWORD}, or ~/.netrc"
        return AUTHORIZATION, ways.get(scheme, either)


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
        if name.lower() in _OF_CLIENT:
            raise ValueError(f"{name} in {HEADERS} is set by gputop itself. Leave it out.")
        found[name] = value
    return found


def _token(path: Path) -> str:
    """The first line; it may be pasted with blanks around it."""
    shown = visible(str(path), 100)
    try:
        with path.open("rb") as file:
            text = file.read(LONGEST_TOKEN + 1)
    except OSError as error:
        why = f"{shown} cannot be read, {error.strerror}"
        raise CredentialError(
            Problem("No token", why, f"See to it, or unset {TOKEN_FILE}")
        ) from None
    token = text.strip()
    # What a header cannot hold would show itself in the error of the client.
    if not token or len(token) > LONGEST_TOKEN or not all(0x21 <= byte < 0x7F for byte in token):
        why = f"{shown} holds no token in one line of ASCII"
        raise CredentialError(Problem("No token", why, "Write the token alone into it"))
    return token.decode("ascii")


def _of_netrc(host: str) -> tuple[str, str] | None:
    """User and password of that host, from $NETRC or ~/.netrc."""
    import os

    file = os.environ.get("NETRC")
    try:
        found = netrc.netrc(file).authenticators(host)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        why = f"it cannot be read, {getattr(error, 'strerror', None) or 'it is not text'}"
        raise CredentialError(
            Problem("No use of netrc", why, "See to it, or set NETRC=/dev/null")
        ) from None
    except netrc.NetrcParseError as error:
        # Its message quotes what it stumbled over, which may be a password.
        why = f"line {error.lineno} of it cannot be read"
        raise CredentialError(
            Problem("No use of netrc", why, "See to it, or set NETRC=/dev/null")
        ) from None
    return None if found is None else (found[0], found[2] or "")
