"""Shows what a hurried person sees first: `python -m screenshots.scenes FOLDER [--gputop PATH]`.

The shipped command is run in terminals of four sizes, on five machines that are made up: training
as it should be, starved of its input, too hot, without a driver, and 64 devices. FOLDER gets each
screen as text, and at 120x40 as a picture. With the `gputop` of another version, before and after
can be laid side by side.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import resvg_py
from rich.console import Console
from rich.style import Style
from rich.text import Text

from gputop.agent.lines import to_line
from gputop.agent.snapshot import Sample
from screenshots.make import FONT, with_local_font
from tests.terminal import Terminal
from tests.ui.scenes import LATENESS, job, training

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyte.screens import Char

    from gputop.agent.device import DeviceSample
    from gputop.agent.snapshot import Record

SIZES = ((80, 24), (120, 40), (160, 50), (200, 60))
DRAWN = (120, 40)
"""Size of the pictures."""
SAMPLES, SHOWN_SECONDS = 120, 75
SENDS = """#!{python}
import time
for line in open({file!r}):
    print(line, end="", flush=True)
    time.sleep(1)
"""
"""Program in the place of `ssh`."""


def healthy() -> list[Record]:
    """Eight devices that train."""
    return job(8, SAMPLES)


def starved() -> list[Record]:
    """A job whose GPU 6 waits for its input, and one with old memory errors on GPU 2."""
    return changed(
        8,
        {
            6: lambda t: waiting(6, t),
            2: lambda t: training(2, t, ecc_uncorrected=2, remap_pending=True),
        },
    )


def overheated() -> list[Record]:
    """A job with one device that slows down because it is too hot."""
    hot = {
        "clock_event_reasons": ("hw_slowdown", "hw_thermal"),
        "temperature_celsius": 88,
        "sm_clock_mhz": 1215,
    }
    return changed(8, {3: lambda t: training(3, t, **hot)})


def crowd() -> list[Record]:
    """A machine of 64 devices, of which GPU 41 is starved."""
    return changed(64, {41: lambda t: waiting(41, t)})


def waiting(index: int, tick: int) -> DeviceSample:
    """Return the sample of a device that works in three of eight seconds."""
    works = 10 if tick % 8 < 3 else 0
    return training(index, works + LATENESS[index % 8])


def changed(
    devices: int, others: dict[int, Callable[[int], DeviceSample]]
) -> list[Record]:
    """Return a job in which some devices do something else."""
    machine, *told = job(devices, SAMPLES)
    records: list[Record] = [machine]
    for tick, record in enumerate(told):
        assert isinstance(record, Sample)
        made = tuple(
            others[index](tick) if index in others else each
            for index, each in enumerate(record.devices)
        )
        records.append(dataclasses.replace(record, devices=made))
    return records


SCENES = {
    "healthy": healthy,
    "starved": starved,
    "overheated": overheated,
    "no-driver": None,
    "64-devices": crowd,
}


def screens(
    gputop: str, name: str, folder: Path
) -> Iterator[tuple[tuple[int, int], Terminal]]:
    """Yield the terminal of each size after more than a minute."""
    make = SCENES[name]
    arguments = [] if make is None else ["--host", "gpu-7"]
    if make is not None:
        (folder / "stream").write_text("\n".join(map(to_line, make())))
        ssh = folder / "ssh"
        ssh.write_text(
            SENDS.format(python=sys.executable, file=str(folder / "stream"))
        )
        ssh.chmod(0o755)
    env = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": "",
        "XDG_CONFIG_HOME": str(folder),
    }
    with contextlib.ExitStack() as stack:
        terminals = [
            (
                size,
                stack.enter_context(
                    Terminal([gputop, *arguments], env, *size)
                ),
            )
            for size in SIZES
        ]
        while terminals[0][1].elapsed < SHOWN_SECONDS:
            for _, terminal in terminals:
                terminal.collect(0.1)
        yield from terminals


def drawing(terminal: Terminal, title: str) -> str:
    """Return the screen as SVG."""
    screen = terminal.screen
    console = Console(
        record=True,
        width=screen.columns,
        file=io.StringIO(),
        color_system="truecolor",
        force_terminal=True,
    )
    for y in range(screen.lines):
        line = Text()
        for x in range(screen.columns):
            cell = screen.buffer[y][x]
            line.append(cell.data, style_of(cell))
        console.print(line, end="\n", no_wrap=True, crop=True)
    return console.export_svg(title=title)


def style_of(cell: Char) -> Style:
    """Return the style of a cell of pyte's."""
    return Style(
        color=color_of(cell.fg),
        bgcolor=color_of(cell.bg),
        bold=cell.bold,
        reverse=cell.reverse,
        underline=cell.underscore,
    )


def color_of(name: str) -> str | None:
    """Return Rich's name of a colour of pyte's, which has six digits or a word."""
    if name == "default":
        return None
    name = name.replace("brown", "yellow").replace("bright", "bright_")
    return f"#{name}" if re.fullmatch("[0-9a-f]{6}", name) else name


def main() -> None:
    """Write all screens."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--gputop",
        default=str(Path(sys.executable).with_name("gputop")),
        metavar="PATH",
    )
    parser.add_argument(
        "--scene", choices=SCENES, nargs="+", default=list(SCENES)
    )
    options = parser.parse_args()
    options.folder.mkdir(exist_ok=True, parents=True)
    for name in options.scene:
        with tempfile.TemporaryDirectory() as work:
            for (columns, rows), terminal in screens(
                options.gputop, name, Path(work)
            ):
                place = options.folder / f"{name}-{columns}x{rows}"
                place.with_suffix(".txt").write_text(terminal.text)
                if (columns, rows) == DRAWN:
                    svg = with_local_font(drawing(terminal, f"gputop: {name}"))
                    png = resvg_py.svg_to_bytes(
                        svg_string=svg, font_family=FONT
                    )
                    place.with_suffix(".png").write_bytes(bytes(png))
                print(place)


if __name__ == "__main__":
    main()
