"""What does `--verify all` cost? `python -m tests.perf.bench_verify [--size 1024] [--rounds 40]`.

Counted for GPUs: the sums read C once more, which is what costs, and the less the larger a product
is: `--size auto` takes larger ones (N in brackets). The share is the time for the bytes of C at the
bandwidth of the datasheet, against the time of the product at its dense peak.

Measured on this CPU: blocks of bare products and of verified ones in turns, in one process. The
figure is the median of the rounds' ratios of processor time, with quartiles.
"""

import argparse
import importlib
import statistics
import time
import warnings
from typing import Any

from gputop.bench.plan.kinds import DTYPES
from gputop.bench.plan.peaks import PEAKS
from gputop.bench.run.worker_order import VERIFIED_LARGER
from gputop.bench.worker.checksums import Checksums
from gputop.bench.worker.loads import PRODUCT_SECONDS
from gputop.bench.worker.product import Product

GPUS = ("A100 SXM4", "H100 SXM", "H200 SXM", "B200", "L40S")
FIELDS = {"float32": "fp32", "tf32": "tf32", "bfloat16": "fp16", "float8_e4m3": "fp8"}
FIELDS |= {"int8": "int8", "float64": "fp64"}
BLOCK_SECONDS = 0.1


def counted() -> None:
    """Print the share of the product's time by GPU and data type, in percent."""
    print("counted, percent of the product's time at the datasheet's figures")
    print(f"{'':32}" + "".join(f"{name:>14}" for name in FIELDS))
    for peak in PEAKS:
        if not any(name in peak.name for name in GPUS):
            continue
        cells = []
        for name, field in FIELDS.items():
            dtype, rate = DTYPES[name], getattr(peak, field)
            bandwidth = 1e9 * (peak.memory_gigabytes_per_second or 0)
            if not rate or not bandwidth:
                cells.append("–")
                continue
            n, flops = dtype.auto_size, 1e12 * rate
            largest = VERIFIED_LARGER * n
            while n < largest and 2 * (2 * n) ** 3 / flops < PRODUCT_SECONDS:
                n *= 2
            share = dtype.result_bytes * n * n / bandwidth / (2 * n**3 / flops)
            cells.append(f"{100 * share:.2f} ({n >> 10}k)")
        print(f"{peak.name:32}" + "".join(f"{cell:>14}" for cell in cells))


def measured(torch: Any, dtype: str, size: int, rounds: int) -> str:
    """Return the ratio of the time of verified products to that of bare ones."""
    product = Product(torch, dtype, (size, size, size), "cpu")
    product.fill()
    product.keep_first()
    product.judge()
    sums = Checksums(product)
    began = time.perf_counter()
    product.multiply()
    times = max(1, int(BLOCK_SECONDS / (time.perf_counter() - began)))

    def seconds(work: Any) -> float:
        began = time.process_time()
        work(times)
        return time.process_time() - began

    ratios = []
    for turn in range(rounds):
        pair = [product.multiply, sums.multiply][:: 1 - 2 * (turn % 2)]
        taken = {work: seconds(work) for work in pair}
        ratios.append(taken[sums.multiply] / taken[product.multiply])
    low, middle, high = statistics.quantiles(ratios, n=4)
    found = sums.take().tolist()
    return f"{middle:.3f} ({low:.3f} to {high:.3f}), {rounds * times} products, found {found}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--dtype", nargs="*", default=["float32", "float64"])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch = importlib.import_module("torch")
    torch.set_num_threads(args.threads)
    counted()
    for dtype in args.dtype:
        print(f"{dtype} {args.size}: {measured(torch, dtype, args.size, args.rounds)}")


if __name__ == "__main__":
    main()
