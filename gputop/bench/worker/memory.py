"""`memory`: write patterns into free memory, and read each word back."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .copy_paths import ODD
from .errors import RunError
from .events import Point
from .needs import GIB, MIB
from .product import room_beside
from .throughput import SoakTotals

if TYPE_CHECKING:
    from .events import Figures, Progress
    from .main import WorkerRun

BLOCK_BYTES = {"cpu": 32 * MIB, "cuda": GIB}
"""Most bytes written or compared at once (about 10 ms). Blocks get smaller if memory is small."""
LEAST_BLOCKS, LEAST_BLOCK_BYTES = 16, MIB
BITS, BYTES_OF_WORD, WORD = 64, 8, 2**64 - 1
"""Bits of a word (also the words of a row), bytes of a word, and a word with all bits set."""
FEW = 8
FILL_SHARE = 0.25
"""Most of a run's time for writing to the memory for the first time. Then the rest is left out."""
FIXED = (
    0x0,
    0x5555555555555555,
    0x3333333333333333,
    0x0F0F0F0F0F0F0F0F,
    0x00FF00FF00FF00FF,
)

Sweep = tuple[int, Any, Any]
"""Direction over the blocks (1 upwards, -1 downwards), mask to compare and mask to write.

Each block is compared, then written. A mask is 0 for the words of the pattern and -1 for their
complement; with None this step is skipped.
"""
PLAIN: tuple[Sweep, ...] = ((1, None, 0), (1, 0, None))
INVERTED: tuple[Sweep, ...] = (
    (1, None, 0),
    (1, 0, -1),
    (-1, -1, 0),
    (-1, 0, None),
)
NAMES = (
    "random",
    "address",
    "moving inversions",
    "walking ones",
    "walking zeros",
)
PATTERNS = {**dict.fromkeys(NAMES, PLAIN), "moving inversions": INVERTED}


class MemoryTotals(SoakTotals):
    """Totals by pattern. They count bytes instead of products."""

    def __init__(self) -> None:
        super().__init__(flop=1)
        self.block_bytes = self.total_bytes = 0
        self.patterns: dict[str, tuple[int, float, int]] = {}
        """Bytes read and written, seconds, and blocks compared."""

    def visit(
        self, pattern: str, bytes_: int, seconds: float, compared: int
    ) -> Progress | None:
        """Count a block, and return the sample if it ends a window."""
        before = self.patterns.get(pattern, (0, 0.0, 0))
        self.patterns[pattern] = (
            before[0] + bytes_,
            before[1] + seconds,
            before[2] + compared,
        )
        self.checks += compared
        self.verified += compared
        sample = self.add(bytes_, seconds, None)
        if sample is None:
            return None
        rate = 1e12 * sample.tflops
        return replace(
            sample, tflops=0.0, bytes_per_second=rate, iterations=self.verified
        )

    def figures(self) -> Figures:
        """Return the figures so far, with a row for each pattern."""
        points = []
        for name, (moved, seconds, compared) in list(self.patterns.items()):
            whole = (
                self.total_bytes / self.block_bytes * (len(PATTERNS[name]) - 1)
            )
            values = {
                "bytes_per_second": moved / seconds,
                "passes": compared / whole,
            }
            points.append(Point(name, self.block_bytes, values))
        counts = self.counts(self.now)
        return replace(counts, iterations=self.verified, points=tuple(points))


def memory(device: Any, run: WorkerRun) -> None:
    """Write patterns into all memory that the run may use, and read them back."""
    tested = MemoryUnderTest(device, run)
    totals, seconds = tested.totals, run.request.seconds
    run.planned(
        dtype="bytes",
        accumulate="none",
        layout=f"blocks of {totals.block_bytes // MIB} MiB",
        data=", ".join(PATTERNS),
        method=f"patterns in words of 64 bits, written to {totals.total_bytes / GIB:.4g} GiB in "
        f"{len(tested.blocks)} blocks and compared; moving inversions up and down, block by block; "
        "all bytes read and written count, including the expected words of comparisons; wall time",
    )
    for number in itertools.count():
        for pattern, sweeps in PATTERNS.items():
            tested.choose(pattern, number)
            for at, compared, written in tested.visits(sweeps):
                if run.halt.is_set() or totals.seconds >= seconds:
                    tested.note_missing()
                    return
                tested.visit(at, compared, written)
                is_filling = not totals.checks
                if is_filling and totals.seconds >= FILL_SHARE * seconds:
                    tested.leave_out_after(at)


class MemoryUnderTest:
    """The memory under test, and its expected words."""

    def __init__(self, device: Any, run: WorkerRun) -> None:
        self.device, self.run = device, run
        totals = self.totals = run.totals = MemoryTotals()
        torch, size = device.torch, BLOCK_BYTES[device.place]
        free = room_beside(0, device, run.request)
        while size > LEAST_BLOCK_BYTES and free < LEAST_BLOCKS * size:
            size //= 2
        # Two blocks hold expected words, and a comparison makes a mask with a
        # byte per word.
        count = (free - 2 * size - size // 8) // size
        totals.block_bytes, totals.total_bytes = size, count * size
        if (
            device.uses_host_memory
        ):  # the kernel's OOM killer should choose this process
            with contextlib.suppress(OSError):
                Path("/proc/self/oom_score_adj").write_text("1000")
        if count < 1:
            why = f"{max(0, free) / MIB:.0f} MiB may be used"
            remedy = (
                "End processes that use the memory, or raise --memory-share"
            )
            raise RunError("memory", "No memory is left to test", why, remedy)
        shape = (count + 2, size // 8 // BITS, BITS)
        words = torch.empty(shape, dtype=torch.int64, device=device.place)
        *self.blocks, self.own, self.expected = words
        self.pattern, self.number, self.stride, self.words = "", 0, 0, self.own
        """`words` are those of block 0. Other blocks have them XOR a multiple of `stride`."""
        self.named: set[int] = set()

    def choose(self, pattern: str, number: int) -> None:
        """Choose the pattern of the next pass; `number` counts the passes of each pattern."""
        torch, own = self.device.torch, self.own
        self.pattern, self.number, self.stride, self.words = (
            pattern,
            number,
            0,
            own,
        )
        row = torch.arange(BITS, device=own.device)
        if pattern == "random":
            own.random_(-(2**63), None)
            self.stride = ODD  # the words differ from block to block
        elif (
            pattern == "address"
        ):  # a word is its offset in bytes, inverted in every second pass
            torch.arange(
                0,
                8 * own.numel(),
                8,
                out=own.view(-1),
            )
            own.bitwise_xor_(-(number % 2))
            self.stride = self.totals.block_bytes
        elif pattern == "moving inversions":
            self.words = torch.full_like(
                row, FIXED[number % len(FIXED)]
            ).expand_as(own)
        else:
            # The 64 words of a row each have a different bit. After 64 passes
            # each word has had each bit.
            ones = torch.ones_like(row) << (row + number) % BITS
            self.words = (
                ones if pattern == "walking ones" else ~ones
            ).expand_as(own)

    def visits(
        self, sweeps: tuple[Sweep, ...]
    ) -> Iterator[tuple[int, Any, Any]]:
        """Yield the blocks in the order of each sweep, and the masks to compare and write."""
        for step, compared, written in sweeps:
            for at in range(len(self.blocks))[::step]:
                if at < len(self.blocks):
                    yield at, compared, written

    def leave_out_after(self, last: int) -> None:
        """Test only the blocks up to this one, because the others would take too long."""
        left_out = len(self.blocks) - last - 1
        if not left_out:
            return
        before = self.totals.total_bytes
        del self.blocks[last + 1 :]
        self.totals.total_bytes -= left_out * self.totals.block_bytes
        self.run.notes.append(
            f"tested {self.totals.total_bytes / GIB:.3g} of {before / GIB:.3g} GiB: the rest "
            "would have taken too long, give more --seconds"
        )

    def visit(
        self,
        at: int,
        compared: int | None,
        written: int | None,
    ) -> None:
        """Compare and write a block, and send the results."""
        wrong: list[int] = []

        def work(_: int) -> None:
            if compared is not None:
                wrong.append(self.compare(at, compared))
            if written is not None:
                self.put(at, written, self.blocks[at])

        seconds = self.device.wall(work, 1)
        moved = self.traffic(compared is not None, written is not None)
        sample = self.totals.visit(self.pattern, moved, seconds, len(wrong))
        self.totals.wrong += sum(wrong)
        # Send the first wrong words at once, but later ones only with the next
        # sample, because there may be many per second.
        if sample or 0 < sum(wrong) == self.totals.wrong:
            self.run.verified(0, 0, checks=0)
        if sample:
            self.run.send(sample)

    def traffic(self, compared: bool, written: bool) -> int:
        """Return the bytes that are read and written to compare and to write a block.

        A block's words are made from another block, which is read, or from a row, which stays in a
        cache. A comparison writes the expected words and reads both blocks. On a GPU torch also
        writes and reads a mask with a byte for each word.
        """
        size = self.totals.block_bytes
        made = 2 * size if self.words is self.own else size
        compare = made + 2 * size
        if self.device.place == "cuda":
            compare += 2 * size // BYTES_OF_WORD
        return compared * compare + written * made

    def compare(self, at: int, mask: int) -> int:
        """Return the number of wrong words of a block, and note the run's first wrong words."""
        block, expected = self.blocks[at], self.expected
        self.put(at, mask, expected)
        if self.device.torch.equal(block, expected):
            return 0
        differs = block != expected
        for row in differs.any(1).nonzero().flatten()[:FEW].tolist():
            for column in differs[row].nonzero().flatten().tolist():
                offset = at * self.totals.block_bytes + 8 * (
                    row * BITS + column
                )
                if offset in self.named or len(self.named) == FEW:
                    continue
                self.named.add(offset)
                right, found = (
                    int(expected[row, column]),
                    int(block[row, column]),
                )
                bits = ", ".join(
                    str(bit)
                    for bit in range(BITS)
                    if (right ^ found) >> bit & 1
                )
                self.run.notes.append(
                    f"wrong word at offset 0x{offset:x}: expected 0x{right & WORD:016x}, found "
                    f"0x{found & WORD:016x}, flipped bits {bits} "
                    f"({self.pattern}, pass {self.number + 1})"
                )
        return int(differs.sum())

    def put(
        self,
        at: int,
        mask: int,
        to: Any,
    ) -> None:
        """Write the expected words of block `at` to a tensor."""
        key = (at * self.stride ^ mask) & WORD
        signed = key - WORD - 1 if key >> BITS - 1 else key
        self.device.torch.bitwise_xor(self.words, signed, out=to)

    def note_missing(self) -> None:
        """Note the patterns that were not compared in time, unless the run was stopped."""
        known = self.totals.patterns
        missing = [
            name
            for name in PATTERNS
            if name not in known or not known[name][2]
        ]
        if missing and not self.run.halt.is_set():
            more = "give more --seconds, or a smaller --memory-share"
            self.run.notes.append(
                f"the time was up before {', '.join(missing)}: {more}"
            )
