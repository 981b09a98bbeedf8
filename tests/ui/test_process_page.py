import contextlib
from collections.abc import AsyncIterator, Callable
from itertools import takewhile
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Footer

from gputop.agent.device import Absence
from gputop.agent.masking import MASK
from gputop.agent.problem import Problem, ProblemError
from gputop.agent.snapshot import Inventory, Process, Source
from gputop.ui.device.readings import DetailsView
from gputop.ui.device.screen import DevicePage
from gputop.ui.processes.process_details import ProcessDetails
from gputop.ui.processes.process_page import ProcessDetailsView, ProcessPage
from gputop.ui.processes.signal_dialog import SendSignal
from gputop.ui.shell.app import GputopApp
from gputop.ui.shell.header import Header
from tests.streams import PreparedStream, inventory, process, sample, unseen
from tests.ui.pilots import dashboard_of, settle, settled, shown, until

VARIABLES = (
    ("PATH", "/usr/bin:/bin"),
    ("HF_TOKEN", "hf_abcdef"),
    ("HTTPS_PROXY", "http://ada:hunter2@proxy:3128"),
)
DETAILS = ProcessDetails(
    command="python train.py --rank 0 --token=" + MASK,
    unmasked="python train.py --rank 0 --token=abc",
    state="S",
    threads=143,
    parents=((4711, "python"), (4700, "slurmstepd"), (1, "systemd")),
    caught=1 << 14 | 1 << 1,
    ignored=1,
    directory="/home/ada/llama",
    environment=VARIABLES,
)
ON_HOST: Any = {"cpu_percent": 103.0, "memory_resident_bytes": 9 << 20, "slurm_job": "71524"}
ON_TWO = (
    process(4242, 0, sm_utilization_percent=97, **ON_HOST),
    process(4242, 1, sm_utilization_percent=3, **ON_HOST),
    process(5, 1, memory_used_bytes=1),
)


@pytest.fixture
def details(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def have(found: ProcessDetails | Problem = DETAILS, **changes: Any) -> None:
        def read(*_: object) -> ProcessDetails:
            if isinstance(found, Problem):
                raise ProblemError(found)
            return found._replace(**changes)

        monkeypatch.setattr("gputop.ui.processes.process_page.read_details", read)

    have()
    return have


@contextlib.asynccontextmanager
async def page_of(
    *processes: Process,
    key: str = "enter",
    size: tuple[int, int] = (80, 40),
    machine: Inventory | None = None,
) -> AsyncIterator[Pilot[None]]:
    app = GputopApp(PreparedStream(machine or inventory(2), sample(2, processes or ON_TWO)))
    async with settled(app, size) as (_, pilot):
        await pilot.press("3", key)
        await until(pilot, lambda: bool(app.screen.query(ProcessPage)))
        await settle(pilot)
        await until(pilot, lambda: page(pilot)._read_for is None)
        await settle(pilot)
        yield pilot


def page(pilot: Pilot[None]) -> ProcessPage:
    return pilot.app.screen.query_one(ProcessPage)


def lines(pilot: Pilot[None]) -> list[str]:
    return shown(pilot, ProcessDetailsView).splitlines()


def tab(pilot: Pilot[None]) -> str:
    return dashboard_of(pilot.app).query_one(Header).tab


def variables(pilot: Pilot[None]) -> list[str]:
    found = lines(pilot)
    at = next(n for n, line in enumerate(found) if line.startswith("Environment"))
    return [*takewhile(bool, found[at + 1 :])]


@pytest.mark.usefixtures("details")
async def test_a_page_of_a_process_on_two_devices(snapshot: Any) -> None:
    async with page_of() as pilot:
        assert "\n".join(lines(pilot)) == snapshot


@pytest.mark.parametrize(
    ("hidden", "machine", "why"),
    [
        (
            process(7, 0),
            inventory(2, source=Source.SIMULATED),
            "it is simulated and does not exist",
        ),
        (process(7, 0, machine="b"), None, "it runs on b: use `ssh -t b gputop`"),
        (unseen(7, 0, Absence.LOST), None, "gone, or in another namespace: try --pid=host"),
    ],
)
async def test_one_line_says_why_nothing_more_is_known(
    hidden: Process, machine: Inventory | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[object] = []
    monkeypatch.setattr(
        "gputop.ui.processes.process_page.read_details", lambda *each: read.append(each)
    )
    async with page_of(hidden, machine=machine) as pilot:
        assert f"No details: {why}" in " ".join("\n".join(lines(pilot)).split())
        assert "GPU 0      TYPE compute · GPU MEM 2.00 GiB" in lines(pilot)
        await pilot.press("slash", "v", "enter", "v", "down", "e")
        assert read == []
        page(pilot).show(process(8, 0), environment=False)  # as a launcher, it is in no sample
        page(pilot).show_telemetry()
        await settle(pilot)
        assert lines(pilot)[0].endswith(", 1h00m ago")


async def test_what_is_not_permitted_says_so_in_its_place(details: Callable[..., None]) -> None:
    details(directory=None, environment=None)
    async with page_of() as pilot:
        assert "Directory  not permitted: run gputop as its user or as root" in lines(pilot)
        assert [*filter(None, lines(pilot))][-1] == (
            "Environment not permitted: run gputop as its user or as root"
        )
        assert "State      sleeping · 143 threads" in lines(pilot)
    details(Problem("Process 4242 is not shown", "it has ended", "Choose another one"))
    async with page_of() as pilot:
        assert "           Process 4242 is not shown: it has ended. Choose another one" in lines(
            pilot
        )


@pytest.mark.usefixtures("details")
async def test_keys_lead_to_its_gpu_to_signals_and_back() -> None:
    async with page_of() as pilot:
        assert "Enter GPU" in shown(pilot, Footer)
        view: Any = page(pilot)._view
        assert len(view._listing.content.renderables) > 3
        await pilot.press("f9")
        assert isinstance(pilot.app.screen, SendSignal)
        await pilot.press("escape", "enter")
        await until(pilot, lambda: tab(pilot) == "page")
        assert pilot.app.screen.query_one(DevicePage).selected == inventory(2).devices[0]
        await pilot.press("a")
        assert "a shows them" not in shown(pilot, DetailsView)
        assert not pilot.app.screen.query_one(DetailsView).folded
        for expected in ("process", "processes", "monitor"):
            await pilot.press("escape")
            assert tab(pilot) == expected
        assert view._listing.content.renderables == [""], "its environment is not kept"


@pytest.mark.usefixtures("details")
async def test_secrets_are_masked_until_v_shows_them() -> None:
    async with page_of() as pilot:
        for secret in ("abc", "hunter2"):
            assert secret not in "\n".join(lines(pilot))
        assert f"HF_TOKEN={MASK}" in lines(pilot)
        await pilot.press("v")
        assert "HF_TOKEN=hf_abcdef" in lines(pilot)
        assert "HTTPS_PROXY=http://ada:hunter2@proxy:3128" in lines(pilot)
        assert "Command    python train.py --rank 0 --token=abc" in lines(pilot)
        await pilot.press("v")
        assert f"HF_TOKEN={MASK}" in lines(pilot)


@pytest.mark.usefixtures("details")
async def test_a_filter_looks_at_what_shows_and_never_behind_a_mask() -> None:
    async with page_of(key="e") as pilot:
        await pilot.press("slash", *"abc")
        assert variables(pilot) == ["No variable matches"]
        assert "0 of 3" in "\n".join(lines(pilot))
        await pilot.press("enter", "v")
        assert variables(pilot) == ["HF_TOKEN=hf_abcdef"]
        await pilot.press("escape")
        assert "3 of 3" in "\n".join(lines(pilot))
        assert tab(pilot) == "process"


async def test_e_begins_with_the_environment_and_keys_scroll_over_all_of_it(
    details: Callable[..., None],
) -> None:
    value = "".join(f"{n:03d}" for n in range(400)) + "漢字"
    details(environment=(("LS_COLORS", value), ("ZLAST", "z")))
    async with page_of(key="e", size=(60, 16)) as pilot:
        assert lines(pilot)[1].startswith("Environment")
        seen = lines(pilot)[2:]
        view = pilot.app.screen.query_one(ProcessDetailsView)
        while view.scroll_y < view.max_scroll_y:
            await pilot.press("down")
            seen.append(lines(pilot)[-1])
        whole = "".join(line.rstrip(" ▁▂▃▄▅▆▇█") for line in seen)  # without the scroll bar
        assert whole.startswith(f"LS_COLORS={value}ZLAST=z")
        assert "Command    python train.py" in whole
        await pilot.press("home")
        top = lines(pilot)
        await pilot.press("pagedown")
        assert lines(pilot) != top
        await pilot.press("pageup", "end", "home")
        assert lines(pilot) == top
        await pilot.press("end", "escape", "enter")
        assert lines(pilot)[1].startswith("Command")
        await pilot.press("end", "e")
        assert lines(pilot)[1].startswith("Environment")


async def test_foreign_text_is_inert(details: Callable[..., None]) -> None:
    evil = (("A[red]\x1b[2J", "b\u202ec\x00[/]"), ("漢" * 60, "字"))
    details(environment=evil, command="a\x1b[2J漢" * 40, directory="/\x07", parents=((1, "\x1bc"),))
    names = {"user": "[red]x\x1b" + "u" * 90, "slurm_job": "\x1b[31m", "job_id": "\x1bb:1"}
    async with page_of(process(7, 0, rank=3, **names)) as pilot:
        text = "\n".join(lines(pilot))
        assert "job ␛[31m · rank 3 of ␛b:1" in text
        assert "A[red]␛[2J=b⟨202e⟩c␀[/]" in text
        assert f"7 [red]x␛{'u' * 57} " in text
        assert "Directory  /␇" in text
        assert "\x1b" not in text
