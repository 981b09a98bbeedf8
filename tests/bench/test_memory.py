import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputop.bench.events import Conditions, Progress
from gputop.bench.plan.request import Request
from gputop.bench.results.verdict import judge
from gputop.bench.run.device_run import RATE, DeviceRun
from gputop.bench.run.series import merge_windows
from gputop.bench.run.worker_order import worker_request
from gputop.bench.worker import backends
from gputop.bench.worker import main as runs
from gputop.bench.worker import memory as worker
from tests.bench.forked import load_torch
from tests.bench.workers import CPU, RESULT, needs_torch
from tests.runs import gpu_sample
from tests.sessions import PLANNED
from tests.streams import NOW, inventory

MIB = 1 << 20


def asked(mib: int = 32, seconds: float = 1.0, python: str = sys.executable) -> Request:
    """A test of so many MiB, beside what the process needs."""
    free = round(((384 + mib) << 20) / CPU.memory_share)
    return Request(replace(CPU, memory_free_bytes=free), "float32", None, seconds, python, "memory")


def under_test(mib: int = 8) -> worker.MemoryUnderTest:
    """Memory in this process, in blocks of 1 MiB; what it sends goes nowhere."""
    run = runs.WorkerRun(os.open(os.devnull, os.O_WRONLY), worker_request(asked(mib)))
    device = backends.Cpu(load_torch(), run.halt)
    return worker.MemoryUnderTest(device, run)


@needs_torch
@pytest.mark.parametrize("pattern", worker.PATTERNS)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_a_flipped_bit_is_found_at_its_address_in_every_pattern(
    pattern: str, data: st.DataObject
) -> None:
    memory = under_test()
    size, blocks = memory.totals.block_bytes, len(memory.blocks)
    sweeps = worker.PATTERNS[pattern]
    memory.choose(pattern, data.draw(st.integers(0, 70), "pass"))
    (_, *mine), *rest = sweeps[0], *sweeps[1:]
    for at in range(blocks):
        memory.visit(at, *mine)
    offset = 8 * data.draw(st.integers(0, blocks * size // 8 - 1), "word")
    bit = data.draw(st.integers(0, 63), "bit")
    word = memory.blocks[offset // size].view(-1)[offset % size // 8]
    before = int(word)
    word ^= 1 << bit if bit < 63 else -(2**63)
    for at, compared, written in memory.visits(tuple(rest)):
        memory.visit(at, compared, written)
    (note,) = memory.run.notes
    assert f"offset 0x{offset:x}: expected 0x{before % 2**64:016x}" in note
    assert f"found 0x{(before ^ 1 << bit) % 2**64:016x}, flipped bits {bit} ({pattern}" in note
    assert memory.run.totals.wrong == 1, "what was written over it is right again"
    assert memory.totals.checks == blocks * len(rest)


def written(pattern: str, number: int = 0) -> list[list[int]]:
    memory = under_test()
    memory.choose(pattern, number)
    for at in range(len(memory.blocks)):
        memory.put(at, 0, memory.blocks[at])
    return [block.view(-1).tolist() for block in memory.blocks]


@needs_torch
def test_an_address_is_the_offset_of_its_word_and_random_words_differ() -> None:
    words = [word for block in written("address") for word in block]
    assert words == [8 * n for n in range(len(words))]
    assert [word for block in written("address", 1) for word in block] == [~word for word in words]
    for number, bits in enumerate((1, 2, 4, 8), 1):  # alternately zeros and ones
        (word,) = {word for block in written("moving inversions", number) for word in block}
        assert f"{word:064b}" == ("0" * bits + "1" * bits) * (32 // bits)
    chosen = [word for block in written("random") for word in block]
    assert len(set(chosen)) == len(chosen), "within a block and between blocks"


@needs_torch
def test_each_bit_of_each_word_walks() -> None:
    memory = under_test()
    for pattern, sign in (("walking ones", 1), ("walking zeros", -1)):
        seen: list[set[int]] = [set() for _ in range(130)]
        for number in range(64):
            memory.choose(pattern, number)
            memory.put(1, 0, memory.blocks[1])
            for n, word in enumerate(memory.blocks[1].view(-1)[:130].tolist()):
                seen[n].add((word if sign > 0 else ~word) % 2**64)
        assert all(words == {1 << bit for bit in range(64)} for words in seen)


@needs_torch
@pytest.mark.parametrize(
    ("pattern", "place", "write", "compare"),
    [
        ("walking ones", "cpu", 1.0, 3.0),
        ("random", "cpu", 2.0, 4.0),
        ("moving inversions", "cuda", 1.0, 3.25),
        ("address", "cuda", 2.0, 4.25),
    ],
)
def test_every_byte_that_is_moved_is_counted(
    pattern: str, place: str, write: float, compare: float
) -> None:
    """A write reads its words; a comparison makes the expected ones and reads two blocks."""
    memory = under_test()
    memory.device.place = place
    size = memory.totals.block_bytes
    memory.choose(pattern, 0)
    memory.visit(0, None, 0)
    assert memory.totals.patterns[pattern][0] == write * size
    memory.visit(0, 0, None)
    assert memory.totals.patterns[pattern][0] == (write + compare) * size
    memory.visit(0, 0, 0)
    assert memory.totals.patterns[pattern][0] == 2 * (write + compare) * size


@needs_torch
def test_the_memory_that_it_takes_is_what_it_may() -> None:
    memory = under_test(64)
    totals = memory.totals
    taken = totals.total_bytes + 2 * totals.block_bytes + totals.block_bytes // 8
    assert taken <= 64 * MIB < taken + totals.block_bytes
    assert Path("/proc/self/oom_score_adj").read_text() == "1000\n", "the kernel ends it first"
    memory.choose("address", 0)
    for _ in range(2):
        for at in range(3):
            memory.put(at, 0, memory.blocks[at])
            memory.blocks[at].view(-1)[:4] += 1
            assert memory.compare(at, 0) == 4
    assert len(memory.run.notes) == worker.FEW, "the first wrong words, each once"


@needs_torch
def test_memory_that_takes_too_long_to_fill_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may have more memory than it can fill within the run."""
    run = runs.WorkerRun(os.open(os.devnull, os.O_WRONLY), worker_request(asked(8, seconds=8.0)))
    device = backends.Cpu(load_torch(), run.halt)

    def block_in_a_second(work: Callable[[int], None], count: int) -> float:
        work(count)
        return 1.0

    monkeypatch.setattr(device, "wall", block_in_a_second)
    worker.memory(device, run)
    assert isinstance(run.totals, worker.MemoryTotals)
    assert run.totals.patterns["random"] == (2 * (2 + 4) * MIB, 4.0, 2)
    assert run.notes[0].startswith("tested 0.00195 of 0.00")
    missing = "moving inversions, walking ones, walking zeros"
    assert run.notes[1].startswith(f"the time was up before {missing}: give more --seconds")
    row, other = run.totals.figures().points
    assert (row.series, row.x) == ("random", MIB)
    assert row.values == {"bytes_per_second": 3 * MIB, "passes": 1.0}
    assert other.series == "address"


def test_windows_in_bytes_are_joined_and_drawn_in_their_unit() -> None:
    windows = [Progress(float(n), 1.0, n, bytes_per_second=n * 1e9) for n in (1, 3)]
    assert merge_windows(windows).rate == 2.0
    run = DeviceRun(asked())
    for window in windows:
        run.add_event(window)
    assert (run.rate_now, run.rate_mean, run.rate_peak) == (3.0, 2.0, 3.0)
    assert run.rate_scale(1.0) == ("GB/s", 1.0)
    assert run.series(RATE) == [(1.0, 1.0), (3.0, 3.0)]


GPU = replace(CPU, kind="cuda", uuid=inventory(1).devices[0].uuid, index=0)
TESTED = replace(RESULT, kind="memory", device_uuid=GPU.uuid, tflops_mean=None, tflops_peak=None)


def counted(kind: str, *, is_pending: bool = False, **after: Any) -> Conditions:
    """The conditions of a run that begins with counters of 2 and ends with these."""
    clock = [NOW]
    run = DeviceRun(Request(GPU, "bfloat16", None, 10.0, kind=kind), lambda: clock[0])
    run.add_event(inventory(1))
    quiet = {"ecc_corrected": 2, "ecc_uncorrected": 0, "remap_pending": is_pending}
    run.add_event(gpu_sample(NOW - 5, **{**quiet, "ecc_corrected": 1}))
    run.add_event(gpu_sample(NOW - 1, **quiet))
    run.add_event(PLANNED)
    for n in (1, 2):
        run.add_event(gpu_sample(NOW + n, **{**quiet, **after}))
    found = run.completed(replace(TESTED, kind=kind)).conditions
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("after", "state", "why"),
    [
        ({}, "ok", "no counter of memory errors rose"),
        ({"ecc_corrected": 5}, "ok", "ECC corrected 2 before, 5 after"),
        ({"remap_pending": True}, "degraded", "remap pending 0 before, 1 after"),
        ({"ecc_uncorrected": 1}, "faulty", "ECC uncorr. 0 before, 1 after"),
    ],
)
def test_the_devices_own_counters_are_judged(after: dict[str, Any], state: str, why: str) -> None:
    conditions = counted("memory", **after)
    assert conditions.memory_errors["ecc_corrected"][0] == 2, "before the run, not at the start"
    verdict = judge(replace(TESTED, conditions=conditions), [])
    (part,) = [part for part in verdict.parts if part.name == "memory"]
    assert (part.state, part.why) == (state, why)
    assert bool(counted("soak", **after).memory_errors) is bool(after), "elsewhere only if one rose"
    bad = counted("soak", is_pending=True).memory_errors
    assert bad == {"remap_pending": (1, 1)}, "also a state that was bad before"
