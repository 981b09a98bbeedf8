import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import sshd
from tests.e2e.shipped import NO_DRIVER
from tests.e2e.sshd import Sshd
from tests.terminal import MARKER, processes_of
from tests.waiting import until


class Lab:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run_id = str(uuid.uuid4())
        self.environment = {MARKER: self.run_id, "PATH": os.environ["PATH"]}
        self._hosts: list[Sshd] = []
        self._key = sshd.make_key(folder / "user-key")
        self._options: dict[str, str] = {}

    def add(self, name: str, *lines: str, options: str = "") -> Sshd:
        environment = sshd.set_environment(self.environment)
        host = Sshd(self.folder, name, self._key, environment, *lines)
        self._hosts.append(host)
        self._options[name] = options
        try:
            host.start()
        except RuntimeError as error:
            pytest.skip(str(error))
        return host

    def programs(self) -> Path:
        programs = sshd.ssh_for(self.folder, self._hosts, self._key)
        config = self.folder / "ssh-config"
        own = "".join(f"Host {name}\n{lines}\n" for name, lines in self._options.items())
        config.write_text(own + config.read_text())
        return programs

    def stop(self) -> None:
        for host in self._hosts:
            host.stop()

    def left(self) -> dict[int, str]:
        """The processes that run on a host."""
        found = processes_of(self.run_id)
        return {pid: words for pid, words in found.items() if not words.startswith("sshd")}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    if not sshd.INSTALLED:
        pytest.skip(sshd.MISSING)
    for name, value in NO_DRIVER.items():
        monkeypatch.setenv(name, value)
    made = Lab(tmp_path)
    try:
        yield made
        until(lambda: not made.left(), otherwise=made.left)
    finally:
        made.stop()
