"""The environment of a process: sorted, searched, and without its secrets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from textual import events
from textual.app import App

import gputop.ui
from gputop.masking import MASK
from gputop.ui.drawing.palette import ACCENT, DIM, STRONG
from gputop.ui.processes.environment import Environment, VariableList, variables_of
from tests.streams import process
from tests.ui.pilots import settle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.pilot import Pilot

VARIABLES = (
    ("PATH", "/usr/bin:/bin"),
    ("TORCH_LOGS", "+dynamo"),
    ("HF_TOKEN", "hf_abcdef"),
    ("SLURM_JOB_ID", "71524"),
    ("CUDA_VISIBLE_DEVICES", "0,1"),
    ("HOME", "/home/ada"),
    ("HTTPS_PROXY", "http://ada:hunter2@proxy:3128"),
    ("NVIDIA_VISIBLE_DEVICES", "all"),
    ("NCCL_DEBUG", "INFO"),
)


class EnvironmentApp(App[None]):
    """Shows one environment."""

    CSS_PATH = Path(gputop.ui.__file__).parent / "shell" / "gputop.tcss"

    def __init__(self, environment: Sequence[tuple[str, str]], user: str = "ada") -> None:
        super().__init__()
        self.screen_shown = Environment(process(4242, 0, user=user), environment)

    def on_mount(self) -> None:
        self.push_screen(self.screen_shown)


def lines(pilot: Pilot[None]) -> list[str]:
    return pilot.app.screen.query_one(VariableList).text().splitlines()


async def test_what_says_most_of_gpus_comes_first_and_is_marked() -> None:
    async with EnvironmentApp(VARIABLES).run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert [line.partition("=")[0] for line in lines(pilot)[:9]] == [
            "CUDA_VISIBLE_DEVICES",
            "NCCL_DEBUG",
            "NVIDIA_VISIBLE_DEVICES",
            "SLURM_JOB_ID",
            "TORCH_LOGS",
            "HF_TOKEN",
            "HOME",
            "HTTPS_PROXY",
            "PATH",
        ]
        view = pilot.app.screen.query_one(VariableList)
        names = [row[0].style for row in view.draw(70, 20)[:9]]
        assert names == [ACCENT] * 5 + [STRONG] * 4


async def test_secrets_are_masked_until_v_shows_them() -> None:
    async with EnvironmentApp(VARIABLES).run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        for secret in ("abcdef", "hunter2"):
            assert secret not in "\n".join(lines(pilot))
        assert f"HF_TOKEN={MASK}" in lines(pilot)
        assert "v shows 2 secrets" in lines(pilot)[-1]
        view = pilot.app.screen.query_one(VariableList)
        (masked,) = (row for row in view.draw(70, 20) if row and row[0].text == "HF_TOKEN")
        assert masked[1].style == DIM
        await pilot.press("v")
        await settle(pilot)
        assert "HF_TOKEN=hf_abcdef" in lines(pilot)
        assert "HTTPS_PROXY=http://ada:hunter2@proxy:3128" in lines(pilot)
        assert "v masks 2 secrets" in lines(pilot)[-1]
        await pilot.press("v")
        await settle(pilot)
        assert f"HF_TOKEN={MASK}" in lines(pilot)


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("GITHUB_TOKEN", "x", True),
        ("aws_secret_access_key", "x", True),
        ("PGPASSWORD", "x", True),
        ("DB_PASSWD", "x", True),
        ("WANDB_API_KEY", "x", True),
        ("GOOGLE_CREDENTIALS", "x", True),
        ("DATABASE_URL", "postgres://ada:pw@db/runs", True),
        ("DATABASE_URL", "postgres://db/runs", False),
        ("MASTER_ADDR", "10.0.0.1:29500", False),
        ("PATH", "/usr/bin", False),
    ],
)
def test_what_looks_like_a_secret(name: str, value: str, secret: bool) -> None:
    (variable,) = variables_of([(name, value)])
    assert variable.secret is secret


async def test_a_filter_looks_at_what_shows_and_never_behind_a_mask() -> None:
    async with EnvironmentApp(VARIABLES).run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("slash", *"abc")
        await settle(pilot)
        assert "No variable contains all of these words" in lines(pilot)[0]
        assert "0 of 9" in lines(pilot)[-1]
        await pilot.press("enter", "v")
        await settle(pilot)
        assert lines(pilot)[0] == "HF_TOKEN=hf_abcdef"
        await pilot.press("escape")
        await settle(pilot)
        assert "9 of 9" in lines(pilot)[-1]


async def test_what_is_typed_at_once_is_taken_in_its_order_letters_of_other_keys_too() -> None:
    app = EnvironmentApp(VARIABLES)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        for key in ("slash", *"visqj", "backspace", "backspace", "enter"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await settle(pilot)
        assert [line.partition("=")[0] for line in lines(pilot)[:3]] == [
            "CUDA_VISIBLE_DEVICES",
            "NVIDIA_VISIBLE_DEVICES",
            "",
        ]
        assert lines(pilot)[-1].startswith("/ vis")
        await pilot.press("slash", "ctrl+u", *"all", "escape")
        await settle(pilot)
        assert "9 of 9" in lines(pilot)[-1]


async def test_a_long_value_takes_several_lines_and_keys_scroll_over_them() -> None:
    value = "".join(f"{n:03d}" for n in range(400)) + "漢字"
    app = EnvironmentApp([("LS_COLORS", value), ("ZLAST", "z")])
    async with app.run_test(size=(60, 16)) as pilot:
        await settle(pilot)
        seen = lines(pilot)[:-1]
        while True:
            await pilot.press("down")
            await settle(pilot)
            if lines(pilot)[-2] == seen[-1]:
                break
            seen.append(lines(pilot)[-2])
        whole = "".join(line.strip() for line in seen)
        assert whole == f"LS_COLORS={value}ZLAST=z"
        await pilot.press("home")
        await settle(pilot)
        top = lines(pilot)
        assert top[0].startswith("LS_COLORS=000001")
        await pilot.press("pagedown", "pageup", "end", "home")
        await settle(pilot)
        assert lines(pilot) == top
        view = app.screen.query_one(VariableList)
        where = (view, 5, 5, 0, 1, 0, False, False, False)
        view.post_message(events.MouseScrollDown(*where))
        await settle(pilot)
        assert lines(pilot)[0] == top[3]
        view.post_message(events.MouseScrollUp(*where))
        await settle(pilot)
        assert lines(pilot) == top


async def test_nothing_to_show_says_why() -> None:
    async with EnvironmentApp(()).run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert "not permitted" in " ".join(lines(pilot))
        await pilot.press("slash", "v", "down")


async def test_foreign_text_is_inert() -> None:
    evil = [("A[red]\x1b[2J", "b\u202ec\x00[/]"), ("漢" * 60, "字")]
    app = EnvironmentApp(evil, user="[red]x\x1b")
    async with app.run_test(size=(60, 16)) as pilot:
        await settle(pilot)
        assert lines(pilot)[0] == "A[red]␛[2J=b⟨202e⟩c␀[/]"
        assert "[red]x␛" in str(app.screen.query_one("Vertical")._border_title)


@pytest.mark.parametrize("key", ["escape", "q", "e"])
@pytest.mark.parametrize("size", [(80, 24), (5, 3), (1, 1)])
async def test_it_closes_at_any_size(key: str, size: tuple[int, int]) -> None:
    app = EnvironmentApp(VARIABLES)
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        assert app.screen is app.screen_shown
        await pilot.press(key, key)
        await settle(pilot)
        assert app.screen is not app.screen_shown
