"""TLS and basic authentication of the exporter, by the web configuration of Prometheus exporters.

https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md says what the
fields mean. As there, the files are read for each connection, and all requests are refused while
they are invalid.
"""

from __future__ import annotations

import base64
import ssl
import threading
from collections.abc import Callable, Mapping
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from re import fullmatch
from socket import socket

import bcrypt
import yaml

from gputop.files import read_at_once

MOST_BYTES = 1 << 16
HASH = r"\$2[abxy]\$(0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{21}[.Oeu][./A-Za-z0-9]{31}"
VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
POLICIES = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
"""Go has two more, which accept unverified certificates."""
FILES = ("cert_file", "key_file", "client_ca_file")
CHOICES: dict[str, tuple[str, Mapping[str, object]]] = {
    "client_auth_type": ("verify_mode", POLICIES),
    "min_version": ("minimum_version", VERSIONS),
    "max_version": ("maximum_version", VERSIONS),
}
"""Attributes of the TLS context, with the values of their fields."""
TLS, USERS = "tls_server_config", "basic_auth_users"
REMEDY = "Mend it: nobody is answered until then."


class WebConfigError(Exception):
    """The file is not valid; the text says why."""


class WebConfig:
    """A web configuration file, read for each connection, by several threads."""

    def __init__(self, file: Path, tell: Callable[[str], None]) -> None:
        """Read the file; reports errors to `tell`, and raises `WebConfigError`."""
        self._file, self._tell, self._told = file, tell, ""
        self._hashing = threading.Lock()
        self._signed_in: dict[str, bytes] = {}
        """Digest of each user's last valid login, because bcrypt is slow on purpose."""
        self._protection: tuple[ssl.VerifyMode | None, bool] | None = None
        context, _ = self._read()
        self.has_tls = context is not None

    def wrap(self, connection: socket) -> ssl.SSLSocket:
        """Shake hands with a client where TLS is on; raises `OSError` or `WebConfigError`."""
        context, _ = self._read()
        assert context is not None
        return context.wrap_socket(connection, server_side=True)

    def refusal(self, authorization: str) -> str | None:
        """Return the HTTP status that refuses an `Authorization` header, or None."""
        try:
            _, users = self._read()
        except WebConfigError:
            return "500 Internal Server Error"
        return None if not users or self._is_user(users, authorization) else "401 Unauthorized"

    def _is_user(self, users: Mapping[str, str], authorization: str) -> bool:
        scheme, _, encoded = authorization.partition(" ")
        try:
            name, _, password = base64.b64decode(encoded, validate=True).partition(b":")
            user = name.decode()
        except ValueError:
            return False
        if scheme.lower() != "basic":
            return False
        # An unknown user takes as long as a known one: timing must not tell which users exist.
        stored = users.get(user, next(iter(users.values()))).encode()
        login = sha256(stored + password).digest()
        if user in users and compare_digest(self._signed_in.get(user, b""), login):
            return True
        with self._hashing:  # guessing passwords uses one core at most
            if not bcrypt.checkpw(password[:72], stored) or user not in users:
                return False
        self._signed_in[user] = login
        return True

    def _read(self) -> tuple[ssl.SSLContext | None, Mapping[str, str]]:
        try:
            tls, users = _parsed(read_at_once(self._file, MOST_BYTES))
            context = _context(self._file.parent, tls) if tls else None
            self._check_protection((context.verify_mode if context else None, bool(users)))
        except (OSError, WebConfigError) as error:
            why = getattr(error, "strerror", None) or str(error)
            if why != self._told:
                self._tell(f"error: {self._file} cannot be used: {why}. {REMEDY}")
            self._told = why
            raise WebConfigError(why) from None
        self._told = ""
        return context, users

    def _check_protection(self, now: tuple[ssl.VerifyMode | None, bool]) -> None:
        """Refuse a file with another kind of protection: it may be half written."""
        if self._protection not in (None, now):
            raise WebConfigError("TLS, client certificates or users begin or end at a restart")
        self._protection = now


def _parsed(content: bytes) -> tuple[dict[str, str], dict[str, str]]:
    try:
        read = yaml.load(content, yaml.BaseLoader) or {}  # noqa: S506 - all is text, nothing is run
        tls, users = ({**(read.pop(name, None) or {})} for name in (TLS, USERS))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", 0) + 1
        raise WebConfigError(f"line {line} is not YAML") from None
    except (TypeError, AttributeError):
        raise WebConfigError(f"{TLS} and {USERS} have to be fields with values") from None
    for name in (*read, *(tls.keys() - {*FILES, *CHOICES})):
        raise WebConfigError(f"{name} is not supported; {', '.join((*FILES, *CHOICES))} are")
    for user, stored in users.items():
        if not fullmatch(HASH, str(stored)):
            raise WebConfigError(f"the password of {user} is not a bcrypt hash")
    return {name: str(value) for name, value in tls.items()}, users


def _context(folder: Path, tls: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for name in CHOICES.keys() & tls.keys():
        attribute, choices = CHOICES[name]
        if tls[name] not in choices:
            raise WebConfigError(f"{name} has to be one of {', '.join(choices)}")
        setattr(context, attribute, choices[tls[name]])
    if not {"cert_file", "key_file"} <= tls.keys():
        raise WebConfigError(f"{TLS} needs cert_file and key_file")
    verifies = context.verify_mode is not ssl.CERT_NONE
    if ("client_ca_file" in tls) != verifies:
        raise WebConfigError("client_ca_file and client_auth_type need one another")
    cert, key, authorities = (folder / tls.get(name, "") for name in FILES)
    try:
        # Without this password, that of a key would be asked for on the terminal.
        context.load_cert_chain(cert, key, password="")
        if verifies:
            context.load_verify_locations(authorities)
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise WebConfigError(f"a file of {TLS} cannot be used: {why}") from None
    return context
