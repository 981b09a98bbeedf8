from pathlib import Path

import pytest

from gputop.stream import host_names
from gputop.stream.host_names import parse_hosts


@pytest.mark.parametrize(
    ("word", "hosts"),
    [
        ("gpu-1", ["gpu-1"]),
        ("node[01-03]", ["node01", "node02", "node03"]),
        ("node[9-11]", ["node9", "node10", "node11"]),
        ("ada@n[1,3,08-09].lab", ["ada@n1.lab", "ada@n3.lab", "ada@n08.lab", "ada@n09.lab"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("ssh://ada@[::1]:22", ["ssh://ada@[::1]:22"]),
    ],
)
def test_ranges(word: str, hosts: list[str]) -> None:
    assert parse_hosts(word) == hosts


@pytest.mark.parametrize("word", ["n[]", "n[a-c]", "n[3-1]", "n[1-]", "n[1,]", "n[-1]"])
def test_what_is_no_range(word: str) -> None:
    with pytest.raises(ValueError, match=r"is not a range of hosts\. Write it as node\[01-40\]"):
        parse_hosts(word)


@pytest.mark.parametrize("word", ["n[1-999999999]", "n[1-9][1-9][1-9][1-9][1-9]", "n[000-300]"])
def test_there_are_not_too_many(word: str) -> None:
    with pytest.raises(ValueError, match="names more than 256 hosts"):
        parse_hosts(word)


def test_a_file_of_hosts(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# our hosts\ngpu-1\n\n  ada@gpu-2  # the new one\nnode[1-2]\n")
    assert parse_hosts(f"@{path}") == ["gpu-1", "ada@gpu-2", "node1", "node2"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot be read: No such file or directory"),
        ("# nobody\n", "contains no hosts. Write one per line"),
        ("-oProxyCommand=sh\n", "is not a host: it begins with `-`"),
        ("gpu-1 gpu-2\n", "is not a host: it has spaces"),
        ("a" * (1 << 20) + "\n", "cannot be read: it is larger than 1024 KiB"),
        ("n[1-200]\n" * 10**4, "names more than 256 hosts"),
    ],
    ids=["no file", "no hosts", "an option", "spaces", "large", "many"],
)
def test_a_file_that_is_of_no_use(tmp_path: Path, content: str | None, why: str) -> None:
    path = tmp_path / "hosts"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ValueError, match=r"^[^\n]*\.$") as raised:
        parse_hosts(f"@{path}")
    assert why in str(raised.value)


CONFIG = """\
Include=la=b/*.conf
Host=login
Host gpu-1 gpu-2 !gpu-3 *.example.org
  HostName 10.0.0.1
host "gpu-10"
Match host gpu-77
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(host_names, "ssh_folder", lambda: tmp_path)
    path = tmp_path / "config"
    path.write_text(CONFIG)
    lab = tmp_path / "la=b"
    lab.mkdir()
    (lab / "a.conf").write_text(f"Host gpu-7 gpu-1\nInclude {path}\nInclude ../la=b/*\n")
    return path


@pytest.mark.parametrize(
    ("pattern", "hosts"),
    [
        ("gpu-*", ["gpu-1", "gpu-2", "gpu-10", "gpu-7"]),
        ("gpu-?", ["gpu-1", "gpu-2", "gpu-7"]),
        ("ada@log*", ["ada@login"]),
    ],
)
def test_hosts_of_the_configuration(config: Path, pattern: str, hosts: list[str]) -> None:
    assert list(dict.fromkeys(parse_hosts(pattern))) == hosts


def test_a_pattern_without_a_match_names_the_file(config: Path) -> None:
    with pytest.raises(ValueError, match=f"'tpu-\\*' matches no Host of {config}"):
        parse_hosts("tpu-*")
