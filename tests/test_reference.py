import re
import shlex
from pathlib import Path

import pytest

from gputop.commands.parser import parser
from gputop.settings import KEYS
from tests.reference import LIBRARY, MANUAL, PAGE, ROOT, TYPES, fields, manual, reference, replaced

PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]


def test_the_page_has_every_option_as_it_is_now() -> None:
    page = PAGE.read_text()
    assert reference() in page, "run `python -m tests.reference`"
    assert replaced(page, "options", reference()) == page


def test_the_page_of_the_library_has_every_field_as_it_is_now() -> None:
    page = LIBRARY.read_text()
    assert replaced(page, "fields", fields()) == page, "run `python -m tests.reference`"
    for each in TYPES:
        assert page.count(f"<summary><code>{each.__name__}</code>") == 1


def test_the_manual_page_has_every_option_as_it_is_now() -> None:
    assert MANUAL.read_text() == manual(), "run `python -m tests.reference`"


def commands_named() -> list[str]:
    table = PAGE.read_text().partition("## Options of gpustat")[2].partition("\n## ")[0]
    return sorted({*re.findall("`(gputop[^`]*)`", table)})


@pytest.mark.parametrize("command", commands_named())
def test_a_command_beside_other_programs_options_is_understood(command: str) -> None:
    words = shlex.split(command)[1:]
    if words == ["--help"]:
        with pytest.raises(SystemExit, match=r"^0$"):
            parser(words).parse_args(words)
    else:
        parser(words).parse_args(words)


def test_the_page_of_settings_has_every_setting() -> None:
    page = (PAGE.parent / "settings.md").read_text()
    assert re.findall(r"^\| `([a-z_]+)` \|", page, re.MULTILINE) == [*KEYS]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text())
    for target in targets:
        file, _, heading = target.partition("#")
        linked = page.parent / file if file else page
        assert linked.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.*)", linked.read_text(), re.MULTILINE)
            assert heading in [
                re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in titles
            ]
