"""A fake CUDA for the benchmark worker: `torch.cuda` on CPU tensors, with a simulated device.

`python` in this folder is an interpreter for `gputop bench --python`. It runs the Python named by
FAKE_CUDA_PYTHON (default `python3`), which needs a torch without CUDA:

    FAKE_CUDA='{"name": "Tesla T4", "capability": "7.5", "rates": {"float16": 24}}' \\
        gputop bench --python tests/fake_cuda/python --size 2048

The GPU itself comes from NVML, so the command also needs `tests.driver`, the fake driver. The
fields are those of `settings.Settings`.

Results are real. A product is computed on the CPU, once for the same operands: prefer `--size 2048`
or smaller. Launching it again only takes simulated time, in the order of streams. In the real
interpreter `step` runs the blocks for CPUs, and `torch.compile` compiles nothing.

A fault is one of `settings.Fault`, as in

    FAKE_CUDA='{"faults": [{"at": "product", "size": 512, "exception": "TypeError"}]}'

Points where a fault can happen (`at`), and the attributes that select one:

| point | reached by | attributes |
|---|---|---|
| `context` | the first call that needs a context on a device | `device` |
| `product` | the launch of a product | `kind` (as in `Settings.rates`), `size` (m) |
| `allocate` | a tensor made on a device | `device` |
| `pin` | pinned memory | |
| `copy` | `Tensor.copy_` that involves a device | |
| `write` | `torch.bitwise_xor`, by which `memory` writes its patterns | |
| `peer copy` | the driver's `cuMemcpyAsync`, which returns status 700 | |
| `library` | `preferred_blas_library(name)` | `kind` (`cublas`, `cublaslt`) |
| `collective` | `init_process_group` | |
"""

from __future__ import annotations

from pathlib import Path

PYTHON = Path(__file__).with_name("python")
"""The interpreter for `--python`."""
