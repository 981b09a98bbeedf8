"""TLS and basic authentication of the exporter, by the file that all Prometheus exporters share.

The format: https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md.
As there, the file and the certificates are read again when they change.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import bcrypt
import yaml

LARGEST_BYTES = 1 << 20
VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
CLIENTS = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
"""Policies for certificates of clients. Go's others take certificates that nobody verifies."""
FILES = ("cert_file", "key_file", "client_ca_file")
TLS_KEYS = (*FILES, "client_auth_type", "min_version", "max_version")
NOBODY = bcrypt.hashpw(b"", bcrypt.gensalt(10))
"""Compared with where the user is unknown, so that the time tells nothing."""


class WebConfigError(Exception):
    """The file cannot be used; the text says why, in one line."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    """One reading of the file, with the times of change that it belongs to."""

    context: ssl.SSLContext | None = None
    users: Mapping[str, bytes] = field(default_factory=dict)
    """Hashes of passwords by user; nobody has to sign in where there are none."""
    files: tuple[Path, ...] = ()
    changed: tuple[int, ...] = ()


class WebConfig:
    """The configuration file and what it says now; used by several threads."""

    def __init__(self, file: Path) -> None:
        """Read the file; raises `WebConfigError`."""
        self._file = file
        self._lock = threading.Lock()
        self._loaded = _load(file)
        self._right: set[bytes] = set()
        """Digests of logins that were right: bcrypt is slow on purpose."""

    @property
    def context(self) -> ssl.SSLContext | None:
        """Context of TLS connections, or None for plain HTTP."""
        return self._current().context

    def permits(self, authorization: str) -> bool:
        """Return True if the content of an `Authorization` header lets its client in."""
        users = self._current().users
        if not users:
            return True
        user, password = _credentials(authorization)
        stored = users.get(user, NOBODY)
        digest = sha256(b"\0".join((user.encode(), stored, password))).digest()
        with self._lock:  # one at a time: guessing takes one core at most
            if digest in self._right:
                return True
            if not _is_password(password, stored) or user not in users:
                return False
            self._right.add(digest)
            return True

    def _current(self) -> _Loaded:
        with self._lock:
            if _changed(self._loaded.files) != self._loaded.changed:
                try:
                    self._loaded = _load(self._file)
                    self._right.clear()
                except WebConfigError:
                    pass  # it is being written; what was right before holds until it is whole
            return self._loaded


def _is_password(password: bytes, stored: bytes) -> bool:
    try:
        return hmac.compare_digest(bcrypt.hashpw(password[:72], stored), stored)
    except ValueError:
        return False


def _credentials(authorization: str) -> tuple[str, bytes]:
    scheme, _, encoded = authorization.partition(" ")
    try:
        decoded = base64.b64decode(encoded.strip(), validate=True)
        user, _, password = decoded.partition(b":")
        return (user.decode() if scheme.lower() == "basic" else ""), password
    except (binascii.Error, UnicodeDecodeError):
        return "", b""


def _load(file: Path) -> _Loaded:
    try:
        with file.open("rb") as opened:
            read = yaml.safe_load(opened.read(LARGEST_BYTES))
    except OSError as error:
        raise WebConfigError(error.strerror or str(error)) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise WebConfigError(f"it is no YAML: {' '.join(str(error).split())[:100]}") from None
    sections = _mapping(read or {}, ("tls_server_config", "basic_auth_users"), "the file")
    tls = _mapping(sections.get("tls_server_config") or {}, TLS_KEYS, "tls_server_config")
    paths = {key: file.parent / str(tls[key]) for key in FILES if key in tls}
    files = (file, *paths.values())
    changed = _changed(files)  # before they are read: what changes meanwhile is read again
    users = _users(sections.get("basic_auth_users") or {})
    return _Loaded(_context(tls, paths) if tls else None, users, files, changed)


def _mapping(value: Any, known: tuple[str, ...], where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise WebConfigError(f"{where} has to be keys with values")
    for key in value:
        if key not in known:
            raise WebConfigError(f"{str(key)[:60]!r} in {where} is not known here")
    return value


def _users(value: Any) -> Mapping[str, bytes]:
    if not isinstance(value, dict):
        raise WebConfigError("basic_auth_users has to be names with bcrypt hashes")
    users = {str(name): str(hashed).encode() for name, hashed in value.items()}
    for name, hashed in users.items():
        try:
            bcrypt.hashpw(b"", hashed)
        except ValueError:
            raise WebConfigError(f"the password of {name[:60]!r} is no bcrypt hash") from None
    return users


def _context(tls: Mapping[str, Any], paths: Mapping[str, Path]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if "cert_file" not in paths or "key_file" not in paths:
        raise WebConfigError("tls_server_config needs cert_file and key_file")
    policy = tls.get("client_auth_type", "NoClientCert")
    if policy not in CLIENTS:
        raise WebConfigError(f"client_auth_type has to be one of {', '.join(CLIENTS)}")
    if (CLIENTS[policy] is not ssl.CERT_NONE) != ("client_ca_file" in paths):
        raise WebConfigError("client_ca_file and client_auth_type need one another")
    for key, bound in (("min_version", "minimum_version"), ("max_version", "maximum_version")):
        if (version := tls.get(key)) is not None:
            if version not in VERSIONS:
                raise WebConfigError(f"{key} has to be one of {', '.join(VERSIONS)}")
            setattr(context, bound, VERSIONS[version])
    try:
        context.load_cert_chain(paths["cert_file"], paths["key_file"], password=lambda: "")
        if "client_ca_file" in paths:
            context.load_verify_locations(paths["client_ca_file"])
            context.verify_mode = CLIENTS[policy]
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        why = getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)
        raise WebConfigError(f"its certificate or key cannot be used: {why}") from None
    return context


def _changed(files: tuple[Path, ...]) -> tuple[int, ...]:
    times = []
    for file in files:
        try:
            times.append(file.stat().st_mtime_ns)
        except OSError:
            times.append(0)
    return tuple(times)
