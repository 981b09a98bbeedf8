"""How long a stop takes in each kind of run: `python -m tests.perf.bench_stop [--kinds soak step]`.

Real workers run on the CPU, each kind several times, with a stop at a random moment within four
seconds after the begin. `results` counts the stops after which there was a result: before its first
row a table has none.
"""

import argparse
import asyncio
import dataclasses
import random
import statistics
import sys
import time

from gputop.bench.plan.kinds import CHECK, KINDS
from gputop.bench.plan.request import Request, cpu_ranks, cpu_target, default_dtype
from gputop.bench.plan.target_choice import with_peers
from gputop.bench.run.run import Run
from gputop.bench.run.runner import Runner

LATEST_SECONDS = 4.0


async def stop_once(kind: str, after: float) -> tuple[float, float, bool]:
    """Stop a run so long after its begin.

    Return the seconds to the last event, to the end of all workers, and if a device has a result.
    """
    cpu = dataclasses.replace(cpu_target(), memory_share=0.2)
    targets = cpu_ranks(2, 0.2) if KINDS[kind].several_devices else [cpu]
    options = (default_dtype(cpu), None, 600.0, sys.executable, kind)
    run = Run(with_peers([Request(each, *options) for each in targets]))
    runner, begun = Runner(run), asyncio.Event()
    heard = 0.0

    def hear(*_: object) -> None:
        nonlocal heard
        heard = time.perf_counter()
        if run.begun or run.ended:
            begun.set()

    following = asyncio.create_task(runner.follow(hear))
    await begun.wait()
    await asyncio.sleep(after)
    assert run.problem is None
    if following.done():  # a table with few rows, which were all measured
        return await stop_once(kind, after / 2)
    began = time.perf_counter()
    await runner.stop()
    await following
    return max(0.0, heard - began), time.perf_counter() - began, bool(run.results)


def main() -> int:
    kinds = [kind for kind in KINDS if kind != CHECK]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--kinds", nargs="+", choices=kinds, default=kinds)
    options = parser.parse_args()
    dice = random.Random(1)  # noqa: S311 - it hides nothing
    print("kind         seconds to the end of the run, and of its workers: median, longest")
    longest = 0.0
    for kind in options.kinds:
        moments = [dice.uniform(0.0, LATEST_SECONDS) for _ in range(options.times)]
        stops = [asyncio.run(stop_once(kind, after)) for after in moments]
        ends, gone, kept = zip(*stops, strict=True)
        figures = [statistics.median(ends), max(ends), statistics.median(gone), max(gone)]
        text = "".join(f"{each:8.2f}" for each in figures)
        print(f"{kind:<12}{text}   results: {sum(kept)} of {options.times}", flush=True)
        longest = max(longest, *ends)
    print(f"longest: {longest:.2f} s")
    return int(longest > 0.5)


if __name__ == "__main__":
    sys.exit(main())
