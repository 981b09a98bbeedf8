"""Textual's driver for Linux that sends only changed cells and never blocks.

The driver applies Textual's updates to its copy of the screen. When the terminal has taken the last
output, the driver sends the difference. So a stalled terminal causes no backlog.
"""

from __future__ import annotations

import contextlib
import os
import re
import termios
from itertools import groupby, repeat
from typing import Any

from rich.cells import split_graphemes

from gputop.console import open_terminal, terminal_size
from gputop.ui.drawing.cells import is_narrow
from gputop.ui.textual_workarounds import SteadyDriver

# Each of Textual's updates begins with this.
MOVE = re.compile(r"\x1b\[\d+;\d+H")
TOKEN = re.compile(
    r"\x1b\[(\d+);(\d+)H|\x1b\[([\d;]*)m|([^\x1b\n]+)|\x1b\][^\x1b]*\x1b\\",
)
"""A move, a style, text, or a link. Links are not sent."""
CODE = re.compile(r"[34]8;5;\d+|[34]8;2;\d+;\d+;\d+|\d+")
DEFAULTS = {"0", "39", "49"}
"""SGR codes without effect after a reset. Textual writes them under a dialog."""
SYNC = "\x1b[?2026h", "\x1b[?2026l"
"""Textual's marks around an update. They are dropped, because the update is sent later."""
# This ends a sequence whose rest is dropped.
CANCEL = b"\x18\x1b[m"
GAP = 4
"""Unchanged cells that are sent again, because moving over them takes as many bytes."""

Cell = tuple[str, str]
"""A character and its SGR codes. The second cell of a wide character has no character."""


class ScreenCells:
    """The desired cells of the screen, and the cells that the terminal has."""

    def __init__(self) -> None:
        self._rows: list[list[Cell]] = []
        self._sent: list[list[Cell]] = []
        self.known = False
        """False if the terminal may show something other than the sent cells."""

    def resize(self, width: int, height: int) -> None:
        if [len(row) for row in self._rows] != [width] * height:
            blank = [(" ", "")] * width
            rows = [(row + blank)[:width] for row in self._rows[:height]]
            self._rows = rows + [
                blank.copy() for _ in range(height - len(rows))
            ]
            self.known = False

    def apply(self, update: str) -> None:
        """Write one of Textual's updates as a terminal would."""
        x, y, codes = 0, 0, ""
        for line, column, style, text in TOKEN.findall(update):
            if line:
                x, y = int(column) - 1, int(line) - 1
            elif not text:
                found = CODE.findall(style)
                codes = ";".join(
                    code for code in found if code not in DEFAULTS
                )
            elif y < len(self._rows):
                row, cells = self._rows[y], to_cells(text, codes)
                width = len(row)
                row[x : x + len(cells)] = cells
                del row[width:]
                x += len(cells)

    def difference(self) -> str:
        """Return the output for the changed cells."""
        output, current = [], ""
        if not self.known:
            output.append("\x1b[m\x1b[2J")
            self._sent = [[(" ", "")] * len(row) for row in self._rows]
            self.known = True
        for y, (row, sent) in enumerate(
            zip(self._rows, self._sent, strict=True),
            1,
        ):
            place: int | None = None
            for start, end in changes(row, sent):
                if place is None:
                    output.append(f"\x1b[{y};{start + 1}H")
                else:
                    output.append(f"\x1b[{start - place}C")
                text = "".join(cell[0] for cell in row[start:end])
                # Terminals disagree about the width of other characters.
                place = end if text.isascii() else None
                for codes, cells in groupby(
                    row[start:end],
                    lambda cell: cell[1],
                ):
                    if codes != current:
                        output.append(
                            f"\x1b[0;{codes}m" if codes else "\x1b[m",
                        )
                        current = codes
                    output.extend(character for character, _ in cells)
            sent[:] = row
        return "".join(output) + ("\x1b[m" if current else "")


def to_cells(text: str, codes: str) -> list[Cell]:
    if is_narrow(text):
        return list(zip(text, repeat(codes)))
    cells: list[Cell] = []
    for start, end, width in split_graphemes(text)[0]:
        if width:
            cells += [(text[start:end], codes), *[("", codes)] * (width - 1)]
    return cells


def changes(row: list[Cell], sent: list[Cell]) -> list[list[int]]:
    """Return start and end of each run of different cells."""
    runs: list[list[int]] = []
    if row != sent:
        for x, (new, old) in enumerate(zip(row, sent, strict=True)):
            if new != old and runs and x - runs[-1][1] <= GAP:
                runs[-1][1] = x + 1
            elif new != old:
                runs.append([x, x + 1])
    return runs


class TerminalDriver(SteadyDriver):
    """Driver for the terminal of standard output."""

    def __init__(self, app: Any, **options: Any) -> None:
        options["size"] = options.get("size") or terminal_size()
        super().__init__(app, **options)
        app.terminal = self
        self._cells = ScreenCells()
        self._output = -1
        """Descriptor of the terminal while the app uses it."""
        self._pending = b""
        """Output that the terminal has not taken yet."""
        self._draws = self._blocked = False

    def write(self, data: str) -> None:
        if MOVE.match(data):
            self._cells.resize(*self._app.size)
            self._cells.apply(data)
        elif self._output >= 0 and data not in SYNC:
            self._pending += data.encode(errors="replace")
            self.flush()

    def flush(self) -> None:
        """Send as much as the terminal takes, and the rest when it takes more."""
        while self._output >= 0 and not self._blocked:
            if not self._pending and self._draws:
                self._pending = self._cells.difference().encode(
                    errors="replace",
                )
            if not self._pending:
                return
            try:
                self._pending = self._pending[
                    os.write(self._output, self._pending) :
                ]
            except BlockingIOError:
                self._blocked = True
                self._loop.add_writer(self._output, self._unblock)
            # The terminal is gone. The app notices that.
            except OSError:
                self._pending = b""

    def _unblock(self) -> None:
        self._loop.remove_writer(self._output)
        self._blocked = False
        self.flush()

    def repaint(self) -> None:
        """Send the whole screen, whatever the terminal shows."""
        self._cells.known = False
        self.flush()

    def start_application_mode(self) -> None:
        if self._output < 0:
            self._output = open_terminal()
        self._draws, self._cells.known = True, False
        try:
            super().start_application_mode()  # type: ignore[no-untyped-call]
        # No thread could be started.
        except RuntimeError:
            self.stop_application_mode()
            raise

    def stop_application_mode(self) -> None:
        self._draws = False
        if self._blocked:
            self._loop.remove_writer(self._output)
            self._pending = CANCEL
        # Keep the end together.
        self._blocked = True
        super().stop_application_mode()
        end, self._pending, self._blocked = self._pending, b"", False
        if not self._takes(end):
            # The end replaces the unread output.
            with contextlib.suppress(termios.error):
                termios.tcflush(self._output, termios.TCOFLUSH)
            self._takes(CANCEL + end)

    def _takes(self, data: bytes) -> bool:
        """Write that, and return True unless the terminal is full."""
        try:
            return os.write(self._output, data) == len(data)
        except BlockingIOError:
            return False
        # The terminal is gone.
        except OSError:
            return True

    def close(self) -> None:
        # The thread may not have been started.
        with contextlib.suppress(RuntimeError):
            super().close()
        if self._output >= 0:
            self._loop.remove_writer(self._output)
            os.close(self._output)
        self._output, self._pending, self._blocked = -1, b"", False
