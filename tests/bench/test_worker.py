import ast
import math
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from gputop.bench.events import Progress
from gputop.bench.plan import kinds
from gputop.bench.run.worker_launch import WORKER
from gputop.bench.run.worker_order import worker_request
from gputop.bench.worker import backends, burn, errors, guard, loads, main, throughput
from gputop.bench.worker import product as products
from gputop.bench.worker.needs import fixed_bytes
from tests.bench.forked import load_torch
from tests.bench.workers import STOP_SECONDS, RawWorker, RecordedRun, needs_torch, request

pytestmark = needs_torch


SAYS_WHEN_IT_MULTIPLIES = """
begin, multiply = main.WorkerRun.__init__, Product.multiply
def run(self, *arguments):
    begin(self, *arguments)
    def first(product, times=1):
        Product.multiply = multiply
        self.send(main.Verified(0, 0))
        product.multiply(times)
    Product.multiply = first
main.WorkerRun.__init__ = run
"""


@pytest.mark.slow
def test_stop_takes_effect_in_the_middle_of_a_long_product() -> None:
    with RawWorker(request("float16", 2048, 600.0), SAYS_WHEN_IT_MULTIPLIES) as raw:
        raw.until("verify")
        raw.tell("stop")
        raw.process.wait(STOP_SECONDS)
        # A fast machine may have planned by then, and a slow one not.
        *_, done = raw.events()
        assert done["stopped"] == "user"


def test_the_end_of_the_parent_is_the_end_of_the_worker() -> None:
    with RawWorker(request(size=1024, seconds=600.0), folders=()) as raw:
        raw.until("hello")
        assert raw.until("record")["record"], "of its guard"
        raw.close()
        assert raw.process.wait(STOP_SECONDS) is not None


def test_the_products_at_hand_are_verified_after_a_stop() -> None:
    with RawWorker(request(seconds=600.0), "main.STOP_SECONDS = 60.0\n") as raw:
        raw.until("sample")
        raw.tell("stop")
        *_, last, done = raw.events()
        assert raw.process.wait(STOP_SECONDS) == 0
    assert (last["event"], done["stopped"]) == ("verify", "user")


def test_what_others_print_does_not_reach_the_events() -> None:
    script = (
        "import os, runpy, sys; runpy.run_path(sys.argv[1])['load']()\n"
        "from gputop_worker import main\n"
        "fd = main.own_channel(); print('from Python'); sys.stdout.flush()\n"
        "os.write(1, b'from C'); os.write(fd, b'an event')"
    )
    arguments = [sys.executable, "-c", script, str(WORKER)]
    ended = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert ended.stdout == "an event"
    assert "from Python" in ended.stderr
    assert "from C" in ended.stderr


FILES = sorted(WORKER.parent.glob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_it_is_valid_for_old_pythons_and_needs_nothing_of_gputop(file: Path) -> None:
    tree = ast.parse(file.read_text(), feature_version=(3, 9))
    standard = set(sys.stdlib_module_names)
    allowed = {"torch", *standard}
    if file.stem in ("guard", "heat"):
        allowed.add("gputop")  # the agent, from folders that the parent names
    for node in ast.walk(tree):
        packages = set()
        if isinstance(node, ast.Import):
            packages = {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            assert node.module in {each.stem for each in FILES}
        elif isinstance(node, ast.ImportFrom):
            packages = {(node.module or "").partition(".")[0]}
        # The others may be imported later, in a function.
        assert packages <= (standard if node in tree.body else allowed)
    # Its folder is first on the path of modules until it has taken it off.
    assert file.stem.startswith("__") or file.stem not in standard


class Corrupting(products.Product):
    """A product that goes wrong, as a faulty device's would, once it is asked to."""

    faulty = False

    def multiply(self, times: int = 1) -> None:
        super().multiply(times)
        if self.faulty:
            self.c[3, 5] = float("nan")
            self.c[7, 11] *= -1


def made(dtype: str = "float32", n: int = 192) -> Corrupting:
    torch = load_torch()
    torch.manual_seed(1)
    product = Corrupting(torch, dtype, (n, n, n), "cpu")
    product.fill()
    return product


def cpu() -> backends.Cpu:
    return backends.Cpu(load_torch(), threading.Event())


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_a_wrong_element_is_found_and_counted(dtype: str) -> None:
    product, device = made(dtype), cpu()
    product.keep_first()
    product.multiply()
    assert device.compare(product) == 0
    product.faulty = True
    product.multiply()
    assert device.check(product)[0] == 2
    product.faulty = False
    product.multiply()
    product.c[3, 5] = 99
    assert device.check(product)[0] == 1
    assert device.mismatches == {"wrong": 1, "not repeatable": 1}


def run_in_process(seconds: float = 0.3) -> RecordedRun:
    return RecordedRun(worker_request(request(size=192, seconds=seconds)))


def paced(device: Any, products: int) -> throughput.Pace:
    return throughput.Pace(device, throughput.BATCH_SECONDS / (products + 0.5), 0.0)


def test_a_check_comes_as_often_as_it_costs_next_to_nothing() -> None:
    gpu: Any = backends.Cuda
    assert throughput.Pace(gpu, 0.001, 0.0002).check_interval == pytest.approx(0.02)
    assert throughput.Pace(gpu, 0.001, 0.01).check_interval == pytest.approx(1.0)
    assert throughput.Pace(cpu(), 0.001, 0.0002).check_interval == 1.0
    assert throughput.Pace(cpu(), 0.001, 3.0).check_interval == pytest.approx(30.0)


def test_a_batch_changes_the_pace_at_most_by_a_factor_of_two() -> None:
    pace = throughput.Pace(cpu(), 0.001, 0.0)
    assert (pace.batch_at(0.0), pace.batch_at(1.0), pace.most_in_flight) == (50, 50, 1)
    for seconds, known in ((1.0, 0.002), (1.0, 0.004), (0.0, 0.002), (0.3, 0.003)):
        pace.update(throughput.EndedBatch(100, 0.0, seconds, check_seconds=seconds))
        assert pace.product_seconds == pytest.approx(known)
    assert pace.check_seconds == 0.3
    pace.update(throughput.EndedBatch(0, 0.0, 9.0))
    assert pace.product_seconds == pytest.approx(0.003), "a pause has no product"
    pace.update(throughput.EndedBatch(10, 0.0, 9.0, device_seconds=0.04))
    assert pace.product_seconds == pytest.approx(0.004)
    assert throughput.products_in(1.0, 0.0) == throughput.products_in(0.1, 1.0) == 1


def test_a_run_without_progress_is_stuck_and_after_the_plan_its_device_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(main, "time", SimpleNamespace(monotonic=lambda: now[0]))
    run = main.WorkerRun(os.open(os.devnull, os.O_WRONLY), worker_request(request(seconds=100.0)))
    now[0] += 120.0 + 99.0
    assert run._overdue() is None, "the first product may take as long as the run"
    now[0] += 2.0
    assert vars(run._overdue())["kind"] == "not_ready"
    names = ("dtype", "accumulate", "layout", "data", "method")
    run.working()
    run.planned((1, 1, 1), **dict.fromkeys(names, ""))
    now[0] += 60.5
    assert vars(run._overdue())["kind"] == "hang"
    run.working(20.0)
    for _ in range(2):
        now[0] += 79.0
        assert run._overdue() is None
        run.send(Progress(1.0, 1.0, 1))
    now[0] += 81.0
    assert vars(run._overdue())["kind"] == "hang"


def test_a_run_that_waits_for_others_begins_when_it_is_told() -> None:
    run = run_in_process()
    run.request = replace(run.request, waits=True)
    plan = dict.fromkeys(("dtype", "accumulate", "layout", "data", "method"), "")
    planning = threading.Thread(target=run.planned, kwargs=plan, daemon=True)
    planning.start()
    planning.join(0.1)
    assert planning.is_alive()
    assert run._due == math.inf, "the others may take as long as they need"
    run._go.set()
    planning.join(10)
    assert [event["waits"] for event in run.sent] == [True, False]


@pytest.mark.parametrize(
    ("seconds_of", "size"),
    [
        (lambda n: 2 * n**3 / 0.2e12, 1024),
        (lambda n: 2 * n**3 / 3e9, 256),  # emulated
        (lambda n: 2 * n**3 / 800e12, 8192),  # a GPU's
        (lambda n: 2 * n**3 / 1e5, 64),  # hopeless, and still something
        (lambda n: 0.008 + 2 * n**3 / 0.2e12, 1024),  # held up by others
    ],
)
def test_auto_is_large_enough_and_short_enough(
    monkeypatch: pytest.MonkeyPatch, seconds_of: Any, size: int
) -> None:
    tried: list[int] = []

    def seconds_of_one(_device: object, _dtype: str, n: int) -> float:
        tried.append(n)
        return float(seconds_of(n))

    monkeypatch.setattr(loads, "_seconds_of_one", seconds_of_one)
    run = run_in_process()
    run.request = replace(run.request, size=None)
    device: Any = SimpleNamespace(smallest_size=64)
    assert loads.choose_size(device, run) == size
    assert all(seconds_of(n) <= loads.TRIAL_SECONDS for n in tried[1:])


def test_the_number_of_threads_is_fixed() -> None:
    fixed: list[int] = []
    torch = SimpleNamespace(get_num_threads=lambda: 3, set_num_threads=fixed.append)
    backends.Cpu(torch, threading.Event())
    assert fixed == [3]


@pytest.mark.parametrize(
    ("archs", "capability", "runs"),
    [
        ("sm_80 sm_90", (8, 9), True),
        ("sm_80 sm_90", (7, 0), False),
        ("sm_80 sm_90", (12, 0), False),
        ("sm_75 sm_80 compute_80", (12, 0), True),
        ("sm_90a", (9, 0), True),
        ("sm_100a", (10, 3), False),
        ("sm_100f sm_120", (10, 3), True),
        ("", (9, 0), False),
    ],
)
def test_a_build_has_code_for_a_device_or_not(
    archs: str, capability: tuple[int, int], runs: bool
) -> None:
    assert backends.runs_on(archs.split(), capability) is runs


@pytest.mark.parametrize(
    ("dtype", "error", "refused"),
    [
        ("float32", 3e-4, True),
        ("tf32", 7.7e-4, False),
        ("tf32", 2.4e-3, True),
        ("float16", 2.4e-3, True),
        ("bfloat16", 6e-3, True),
        ("float64", 1e-7, True),
        ("int8", 1e-7, True),
        ("float8_e4m3", 2e-3, False),
        ("float8_e4m3", 2e-2, True),
    ],
)
@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_which_precision_ran_is_seen_by_its_error(
    dtype: str, error: float, refused: bool, place: str
) -> None:
    product = made("float32" if dtype == "tf32" else dtype, 128)
    product.dtype, product.place, product.relative_error = dtype, place, error
    product.format.name, product.format.place = dtype, place
    if place == "cpu" and dtype in ("float16", "bfloat16", "float8_e4m3") and refused:
        low, high = product.errors()  # some CPU libraries sum in these
        assert low < error < high
    elif refused:
        with pytest.raises(errors.RunError, match="not made in") as refusal:
            product.check_precision()
        assert "another torch" in refusal.value.remedy
    else:
        assert not product.check_precision()


def test_errors_are_one_line_with_a_remedy() -> None:
    run = run_in_process()
    no_room = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory\nadvice\n")
    assert errors.explain(no_room, None, run.request).kind == "memory"
    other = errors.explain(
        RuntimeError("CUDA error: launch failed\nFor debugging…"), None, run.request
    )
    assert errors.in_words(other) == (
        "An error of gputop or of torch ended the test: RuntimeError: CUDA error: launch failed"
    )
    for error in (no_room, MemoryError(), KeyError("x"), RuntimeError()):
        refused = errors.explain(error, None, run.request)
        words = refused.kind, refused.what, refused.why, refused.remedy
        assert all(words)
        assert "\n" not in "".join(words)


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_a_remedy_names_options_that_the_kind_takes(kind: str) -> None:
    asked = worker_request(request(size=None, kind=kind))
    no_memory = errors.explain(MemoryError(), None, asked).remedy
    assert "--memory-share" in no_memory
    too_slow = errors.too_slow(asked, "float32", "9").remedy
    for remedy in (no_memory, too_slow):
        assert ("--size" in remedy) == kinds.KINDS[kind].has_size


@pytest.mark.parametrize(
    ("phase", "work", "pause"),
    [
        (0.0, 0.1, 0.0),
        (0.0, 9.0, 0.0),  # longer than the load: it begins with it
        (0.1, 9.0, 0.9),
        (0.39, 0.1, 0.0),
        (0.41, 0.1, 0.59),
    ],
)
def test_a_pulse_begins_work_only_where_it_ends_in_the_first_half_of_a_period(
    monkeypatch: pytest.MonkeyPatch, phase: float, work: float, pause: float
) -> None:
    for hertz in (0.5, 20.0):
        now = 1000.0 + phase / hertz
        monkeypatch.setattr(time, "time", lambda now=now: now)
        assert loads.pause(hertz, work / hertz) == pytest.approx(pause / hertz, abs=1e-9)


def test_burn_takes_operands_from_all_over_the_memory_it_may_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(burn.COPIED_BYTES, "cpu", 1 << 20)
    run = run_in_process()
    run.request = replace(run.request, free_bytes=fixed_bytes("cpu") + (8 << 20))
    first = made(n=192)
    first.keep_first()
    first.judge()
    product = burn.Ring(first, cpu(), run)
    count = int(run.notes[-1].split()[2])
    taken = []
    for _ in range(2 * count):
        product.multiply()
        taken.append(product.a.data_ptr())
    assert len(set(taken)) == count > 3
    assert taken[:count] == taken[count:]
    assert cpu().compare(product) == 0


def test_copies_beside_the_products_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(burn.COPIED_BYTES, "cpu", 1 << 20)
    run = run_in_process()
    traffic = burn.Traffic(cpu(), run)
    join = Mock(wraps=traffic._thread.join)
    monkeypatch.setattr(traffic._thread, "join", join)
    traffic.end()
    join.assert_called_once()  # no other copy is made while the last one is compared
    assert run.totals.wrong == 0
    monkeypatch.setattr(traffic.to, "copy_", lambda _: None)
    traffic.copy(compare=True)
    assert run.totals.wrong == (1 << 20) // 8


def test_copies_that_fail_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def fail(*_: object, **__: bool) -> None:
        threads.append(load_torch().get_num_threads())
        raise RuntimeError("not today")

    monkeypatch.setitem(burn.COPIED_BYTES, "cpu", 1 << 20)
    monkeypatch.setattr(burn.Traffic, "copy", fail)
    run, ends = run_in_process(), list[errors.RunError]()
    monkeypatch.setattr(run, "end", ends.append)
    burn.Traffic(cpu(), run)._thread.join(10)
    assert [end.why for end in ends] == ["RuntimeError: not today"]
    assert threads == [1], "the products have the other cores"


def test_the_guard_is_asked_whether_the_device_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    guarding = threading.Event()
    monkeypatch.setattr(guard.Guard, "run", lambda _: guarding.set())
    run = run_in_process()
    run.guard()
    assert not guarding.is_set(), "without the agent there is none"
    run.request = replace(run.request, agent_folders=())
    run.guard()
    assert guarding.wait(10)
    assert run._guard is not None
    limit = run._guard.answer_due[1]
    run._guard.answer_due = 0.0, limit
    assert run._overdue() is limit


def test_samples_are_dropped_before_the_pipe_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    unread, pipe = os.pipe()
    run = main.WorkerRun(pipe, worker_request(request()))
    for n in range(2000):
        run.send(Progress(float(n), 1.0, n))
    size = len(os.read(unread, 1 << 20))
    assert 1 << 15 < size < (1 << 15) + 200
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(run, "end", lambda: None)
    stop: Any = run.stop
    stop("user")
    assert (run.halted_by, run.halt.is_set(), slept) == ("user", True, [0.2])


def test_every_kind_of_the_worker_is_offered() -> None:
    assert set(main.KINDS) == set(kinds.KINDS) - {"check"}
