import stat
import tomllib
from dataclasses import asdict
from pathlib import Path

import pytest

from gputop import settings
from gputop.agent.problem import Problem, ProblemError
from gputop.settings import DEFAULT, KEYS, Settings

NOTHING: dict[str, str] = {}
OTHER = Settings(
    theme="light",
    ascii=True,
    mouse=False,
    bell=True,
    notes=True,
    on_event="notify-send",
    interval=2.5,
    gpm=False,
    readonly=True,
    density="row",
    sort="memory",
    reverse=True,
    tree=True,
)
FILES = [
    "",
    'theme = "dark"',
    "theme = 'light'   # at home\r\ninterval = 2\r\n",
    'interval = "often"\nmouse = 1\nsort = ["a", "b"] # why\n',
    '"theme" = "ansi"\n\'bell\' = true\n',
    "# first\nlater = 1\n\n# of the table\n[other]\ntheme = 'x' # not this\n",
    "[theme_of_mine]\ntheme = 1\n[[list]]\nbell = 2\n[[list]]\nbell = 3\n",
    "text = '''\ntheme = \"no\"\n[bell]\n'''\nnumbers = [\n[1, 2],\n[3]\n]\nbell = true\n",
    'later.on = {theme = "x"}\nnone = nan\nday = 2026-01-01\n',
    "  interval   =   0.5#close\n\treverse=false\n",
]


def said(problems: list[Problem]) -> list[str]:
    lines = [str(problem) for problem in problems]
    assert all(line.isprintable() for line in lines)
    return lines


def config(folder: Path, content: str) -> Path:
    file = folder / "config.toml"
    file.write_bytes(content.encode())
    return file


def test_where_the_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert settings.path(None, NOTHING) == tmp_path / "gputop" / "config.toml"
    named = {"GPUTOP_CONFIG": "/etc/gputop.toml"}
    assert str(settings.path(None, named)) == "/etc/gputop.toml"
    assert str(settings.path("mine.toml", named)) == "mine.toml"
    monkeypatch.setenv("HOME", "/home/ada")
    assert str(settings.path("~/g.toml", NOTHING)) == "/home/ada/g.toml"
    assert str(settings.path("~nobody-there/g.toml", NOTHING)) == "~nobody-there/g.toml"


@pytest.mark.usefixtures("no_home")
def test_without_a_home_folder_all_is_as_usual_and_nothing_can_be_saved() -> None:
    assert settings.path(None, NOTHING) is None
    assert settings.path("~/g.toml", NOTHING) is None
    assert settings.path(None, {"GPUTOP_CONFIG": "~/g.toml"}) is None
    assert settings.load(None, NOTHING) == (DEFAULT, [])
    with pytest.raises(ProblemError, match=r"HOME is not set.* --config"):
        settings.save(None, asdict(OTHER))


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("theme = 'pink'", "Give one of auto, dark, light, ansi, colour-blind"),
        ("theme = ['dark']", "Give one of auto, dark, light"),
        ("ascii = 'yes'", "Give true or false, or auto"),
        ("mouse = 1", "Give true or false"),
        ("bell = 'auto'", "Give true or false"),
        ("interval = true", "Give seconds from 0.25 to 60"),
        ("interval = 0.2", "Give seconds from 0.25 to 60"),
        ("interval = nan", "Give seconds from 0.25 to 60"),
        ("sort = 'Memory; rm'", "Give the title of a column"),
        ('sort = "a\\u001b"', "Give the title of a column"),
        ('on_event = "\'"', "Give a command"),
    ],
)
def test_a_value_that_cannot_be_is_said_and_the_rest_counts(
    tmp_path: Path, line: str, remedy: str
) -> None:
    file = config(tmp_path, f"{line}\nreadonly = true\n")
    found, problems = settings.load(file, NOTHING)
    assert found == Settings(readonly=True)
    (problem,) = said(problems)
    assert problem.startswith(line.split(maxsplit=1)[0])
    assert str(file) in problem
    assert remedy in problem


def test_a_key_that_is_not_known_is_said(tmp_path: Path) -> None:
    file = config(
        tmp_path, 'colour = "red"\n"\\u001b[31m" = 1\n[keys]\nq = "quit"\n[' + "k" * 130 + "]"
    )
    found, problems = settings.load(file, NOTHING)
    assert found == DEFAULT
    lines = said(problems)
    assert [line.split(" in ")[0] for line in lines] == ["colour", "␛[31m", "keys", "k" * 120]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"theme = ", "Invalid value"),
        (b"theme = 1\ntheme = 2\n", "line 2"),
        (b"\x1b]0;x\x07", "line 1"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[" * 100_000, ""),
        (b"#" * (1 << 16) + b"\n", "larger than 64 KiB"),
    ],
)
def test_a_broken_file_is_said_and_left_alone(tmp_path: Path, content: bytes, why: str) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(content)
    found, problems = settings.load(file, {"GPUTOP_BELL": "1"})
    assert found == Settings(bell=True)
    (problem,) = said(problems)
    assert problem.startswith(f"The settings in {file} are not used: ")
    assert why in problem
    assert problem.endswith("Fix it, or name another one with --config")
    with pytest.raises(ProblemError):
        settings.save(file, asdict(OTHER))
    assert file.read_bytes() == content
    assert list(tmp_path.iterdir()) == [file]


def test_command_line_before_environment_before_file_before_default(tmp_path: Path) -> None:
    file = config(tmp_path, "theme = 'light'\ninterval = 2\nbell = true\n")
    environment = {"GPUTOP_INTERVAL": "3", "GPUTOP_THEME": "ansi"}
    found, problems = settings.load(file, environment, {"theme": "dark"})
    assert problems == []
    assert found == Settings(theme="dark", interval=3.0, bell=True)
    assert settings.load(file, NOTHING, {"bell": False, "ascii": False})[0] == Settings(
        theme="light", interval=2.0, bell=False, ascii=False
    )


def test_every_setting_has_a_variable(tmp_path: Path) -> None:
    environment = {f"GPUTOP_{key.upper()}": str(getattr(OTHER, key)) for key in KEYS}
    assert settings.load(tmp_path / "none", environment) == (OTHER, [])
    found, problems = settings.load(tmp_path / "none", {"GPUTOP_MOUSE": "perhaps\x1b"})
    assert found == DEFAULT
    assert said(problems)[0].startswith("GPUTOP_MOUSE=")


@pytest.mark.parametrize("wanted", [DEFAULT, OTHER])
@pytest.mark.parametrize("content", FILES)
def test_what_was_kept_is_what_is_read(tmp_path: Path, wanted: Settings, content: str) -> None:
    """And what the file has of others stays."""
    file = config(tmp_path, content)
    settings.save(file, asdict(wanted))
    kept = file.read_text()
    assert settings.load(file, NOTHING)[0] == wanted
    before, after = tomllib.loads(content), tomllib.loads(kept)
    assert [repr(after[key]) for key in before if key not in KEYS] == [
        repr(value) for key, value in before.items() if key not in KEYS
    ]
    settings.save(file, asdict(wanted))
    assert file.read_text() == kept


def test_only_what_differs_is_changed(tmp_path: Path) -> None:
    text = "# Mine.\ntheme = 'light'  # paper\ninterval = 1 # as an integer\n\n[later]\nx = 1\n"
    file = config(tmp_path, text)
    settings.save(file, {"theme": "light", "mouse": True, "interval": 1.0})
    assert file.read_text() == text
    settings.save(file, {"theme": "ansi", "bell": True})
    assert file.read_text() == text.replace("'light'", '"ansi"').replace(
        "\n[later]", "bell = true\n\n[later]"
    )


def test_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "config.toml"
    settings.save(file, asdict(DEFAULT))
    assert not file.exists()  # nothing to keep
    settings.save(file, asdict(OTHER))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert settings.load(file, NOTHING) == (OTHER, [])
    assert list(file.parent.iterdir()) == [file]
