"""A real `sshd` on the loopback, run by the user of the tests, and an `ssh` that knows it."""

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterable
from pathlib import Path

import psutil

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
SSH = shutil.which("ssh")
KEYGEN = shutil.which("ssh-keygen")
SEPARATION = Path("/run/sshd")
"""Debian's sshd needs this empty directory where root starts it; its service makes it."""
INSTALLED = all((SSHD, SSH, KEYGEN)) and (os.geteuid() != 0 or SEPARATION.is_dir())
MISSING = (
    "there is no sshd here (in Debian it is in openssh-server)"
    if SSHD is None
    else f"sshd needs `mkdir {SEPARATION}` where root starts it, and ssh and ssh-keygen"
)
"""What to do if it is not."""


class Sshd:
    """One host: a port, a host key and an `sshd`, which can be stopped and started again."""

    def __init__(self, folder: Path, name: str, user_key: Path, *more: str) -> None:
        self.name = name
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.reached_at = self.port
        """The port that `ssh` connects to: that of a line, where one is between."""
        self.key = make_key(folder / f"{name}-host-key")
        self._config = folder / f"{name}-sshd-config"
        self._config.write_text(
            f"ListenAddress 127.0.0.1\nPort {self.port}\nHostKey {self.key}\n"
            f"AuthorizedKeysFile {user_key}.pub\nStrictModes no\nPidFile none\nUsePAM no\n"
            "PasswordAuthentication no\n" + "".join(f"{line}\n" for line in more)
        )

    def start(self) -> None:
        assert SSHD is not None
        log = self._folder / f"{self.name}-log"
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [SSHD, "-D", "-e", "-f", str(self._config)],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
            )
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.1)
                raise RuntimeError(f"sshd does not run here: {log.read_text()}")
        raise RuntimeError(f"sshd does not listen: {log.read_text()}")

    def freeze(self) -> None:
        """Has it say nothing any more, with its connections open: as a dead link."""
        self._signal(signal.SIGSTOP)

    def stop(self) -> None:
        """Ends it with all its connections, as a machine that is switched off."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            self._process = None

    def _signal(self, number: signal.Signals) -> None:
        """To the server and the processes of its connections, not to what these run."""
        if self._process is None:
            return
        listener = psutil.Process(self._process.pid)
        for process in [listener, *listener.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.name().startswith("sshd"):
                    process.send_signal(number)


def set_environment(environment: dict[str, str]) -> str:
    return "SetEnv " + " ".join(f'"{key}={value}"' for key, value in environment.items())


def make_key(path: Path) -> Path:
    assert KEYGEN is not None
    subprocess.run([KEYGEN, "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


def ssh_for(folder: Path, hosts: Iterable[Sshd], user_key: Path) -> Path:
    """A folder for the PATH with an `ssh` that is the real one, with a configuration of its own.

    The real one finds a user's configuration by the user, and not by HOME.
    """
    known = folder / "known-hosts"
    config = folder / "ssh-config"
    known.write_text("")
    config.write_text("")
    for host in hosts:
        public = Path(f"{host.key}.pub").read_text()
        with known.open("a") as file:
            file.write(f"[127.0.0.1]:{host.reached_at} {public}")
        with config.open("a") as file:
            file.write(
                f"Host {host.name}\n  HostName 127.0.0.1\n  Port {host.reached_at}\n"
                f"  User {getpass.getuser()}\n  IdentityFile {user_key}\n"
                f"  IdentitiesOnly yes\n  IdentityAgent none\n  UserKnownHostsFile {known}\n"
                "  GlobalKnownHostsFile /dev/null\n"
            )
    programs = folder / "bin"
    programs.mkdir()
    ssh = programs / "ssh"
    ssh.write_text(f'#!/bin/sh\nexec {SSH} -F {config} "$@"\n')
    ssh.chmod(0o755)
    return programs
