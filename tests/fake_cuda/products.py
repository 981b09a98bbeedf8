"""Matrix products on the fake device: `torch.mm`, `torch._scaled_mm` and `torch._int_mm`."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

from .settings import RATES
from .timeline import Machine

HALF_SUMS = 32
"""How often a float16 sum is rounded on the way along k, at most."""
NO_FLOAT8 = "torch._scaled_mm is only supported on CUDA devices with compute capability >= 8.9"
DTYPES = ("float64", "float32", "bfloat16", "float16")


class Results:
    """Results by the tensor that holds them, as long as neither it nor their sources change."""

    def __init__(self, reference: Any) -> None:
        self._results: dict[int, tuple[Any, int, object]] = {}
        """By the id of a tensor: a reference to it, its version, and what it is the result of."""
        self._reference = reference
        self._stored: dict[int, tuple[Any, int, int]] = {}
        """By address: the storage, its version, and the number of its content."""
        self._numbers = itertools.count()

    def has(self, kind: str, sources: tuple[Any, ...], out: Any) -> bool:
        """Return True if the tensor has that result already."""
        if id(out) not in self._results:
            return False
        made, version, recipe = self._results[id(out)]
        known = made() is out and version == out._version
        return known and recipe == self._recipe(kind, sources)

    def other(self, kind: str, sources: tuple[Any, ...]) -> Any:
        """Return another tensor that has the same result, or None."""
        wanted = self._recipe(kind, sources)
        for made, version, recipe in [*self._results.values()]:
            out = made()
            if out is not None and version == out._version and recipe == wanted:
                return out
        return None

    def keep(self, kind: str, sources: tuple[Any, ...], out: Any) -> None:
        self._results[id(out)] = weakref.ref(out), out._version, self._recipe(kind, sources)

    def note_same(self, copy: Any, source: Any) -> None:
        """Note that a copy has the content of its source."""
        number = self._number(source)
        storage = copy.untyped_storage()
        self._stored[storage.data_ptr()] = self._reference(storage), copy._version, number

    def _recipe(self, kind: str, sources: tuple[Any, ...]) -> object:
        return kind, [(self._number(each), each.shape, each.stride()) for each in sources]

    def _number(self, tensor: Any) -> int:
        """Return the number of a storage's content: a new one if it was changed."""
        storage, version = tensor.untyped_storage(), tensor._version
        reference, known, number = self._stored.get(storage.data_ptr(), (None, 0, 0))
        if reference is None or reference.expired() or known != version:
            number = next(self._numbers)
            self._stored[storage.data_ptr()] = self._reference(storage), version, number
        return number


class MatmulSettings:
    """`torch.backends.cuda.matmul` of a version of torch."""

    def __init__(self, version: tuple[int, int]) -> None:
        vars(self)["is_new"] = version >= (2, 9)
        vars(self)["allow_fp16_reduced_precision_reduction"] = True
        vars(self)["allow_bf16_reduced_precision_reduction"] = True
        vars(self)["fp32_precision" if version >= (2, 9) else "allow_tf32"] = False
        if version >= (2, 7):
            vars(self)["allow_fp16_accumulation"] = False

    def __setattr__(self, name: str, value: object) -> None:
        if name == "allow_tf32" and vars(self)["is_new"]:
            raise RuntimeError("you have mix of the legacy and new APIs")
        if name not in vars(self):
            raise AttributeError(f"Unknown attribute {name}")
        vars(self)[name] = value


class Products:
    def __init__(self, machine: Machine, results: Results, version: tuple[int, int]) -> None:
        self.machine, self.torch, self.results = machine, machine.torch, results
        self.old_scaled_mm = version < (2, 5)
        self._capability = machine.settings.compute_capability
        self._rates = {**RATES, **machine.settings.rates}
        self.matmul = MatmulSettings(version)
        self._mm, self._int_mm = self.torch.mm, self.torch._int_mm
        self._copy = self.torch.Tensor.copy_
        self._names = {getattr(self.torch, name): name for name in DTYPES}

    def mm(self, a: Any, b: Any, *, out: Any = None) -> Any:
        kind = self._kind(a, b)
        if out is None:
            out = self.torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device="cuda")
        return self._launch(kind, a, b, out, COMPUTE.get(kind, Products._plain))

    def scaled_mm(
        self,
        a: Any,
        b: Any,
        *,
        scale_a: Any,
        scale_b: Any,
        out_dtype: Any = None,
        use_fast_accum: bool = False,
        out: Any,
    ) -> Any:
        """As `torch._scaled_mm` with `out`. All scales have to be one."""
        largest = None
        if self.old_scaled_mm:
            out, largest = out
        if self._capability < (8, 9):
            raise RuntimeError(NO_FLOAT8)
        if a.stride(1) != 1 or b.stride(0) != 1:
            raise RuntimeError("mat1 must be row_major and mat2 column_major")
        if a.shape[1] % 16 or b.shape[1] % 16:
            raise RuntimeError("Expected trailing dimensions to be divisible by 16")
        kind = "float8_fast" if use_fast_accum else "float8"
        self._launch(kind, a, b, out, Products._by_float32)
        if largest is None:
            return out
        largest.fill_(float(out.abs().max()))
        return out, largest

    def int_mm(self, a: Any, b: Any, *, out: Any) -> Any:
        if a.shape[0] <= 16:
            raise RuntimeError(f"self.size(0) needs to be greater than 16, but got {a.shape[0]}")
        if a.shape[1] % 8 or b.shape[1] % 8:
            raise RuntimeError("self.size(1) and mat2.size(1) need to be multiples of 8")
        return self._launch("int8", a, b, out, Products._integer)

    def _kind(self, a: Any, b: Any) -> str:
        kind, chosen = self._names[a.dtype], vars(self.matmul)
        if kind == "float16" and chosen.get("allow_fp16_accumulation"):
            return "float16_acc16"
        uses_tf32 = chosen.get("allow_tf32") or chosen.get("fp32_precision") == "tf32"
        if kind == "float32" and uses_tf32:
            return "tf32"
        return kind

    def _launch(self, kind: str, a: Any, b: Any, out: Any, compute: Any) -> Any:
        machine, (m, k), n = self.machine, a.shape, b.shape[1]
        device = machine.current_stream.device
        seconds = 2 * m * n * k / (1e12 * self._rates[kind])
        fault = machine.faults.reach("product", kind=kind, size=m)
        if fault in ("die", "hang"):
            machine.fail(fault, "product", device)
        machine.launch(seconds)
        self._make(kind, a, b, out, compute, fault)
        return out

    def _make(self, kind: str, a: Any, b: Any, out: Any, compute: Any, fault: str = "") -> None:
        kind += fault
        if self.results.has(kind, (a, b), out):
            return
        same = self.results.other(kind, (a, b))
        if same is None:
            compute(self, a, b, out)
        else:
            self._copy(out, same)
        if same is None and fault in ("wrong", "other bits"):
            self._disturb(out, fault)
        self.results.keep(kind, (a, b), out)

    def _disturb(self, out: Any, fault: str) -> None:
        """Change an element by much, or one that was rounded by one unit in the last place."""
        integers = {2: self.torch.int16, 4: self.torch.int32, 8: self.torch.int64}
        words = out.view(integers[out.element_size()])
        if fault == "wrong":
            words[-1, -1] ^= 1 << (8 * out.element_size() - 2)
            return
        # An integer may be exact, and would be wrong with another last bit.
        rounded = (out[-1].float() % 1).nonzero().flatten()
        if len(rounded):
            words[-1, rounded[-1]] ^= 1

    def _plain(self, a: Any, b: Any, out: Any) -> None:
        self._mm(a, b, out=out)

    def _by_float32(self, a: Any, b: Any, out: Any) -> None:
        self._copy(out, self._mm(a.float(), b.float()))

    def _rounded_to_tf32(self, a: Any, b: Any, out: Any) -> None:
        def rounded(operand: Any) -> Any:
            bits = operand.view(self.torch.int32)
            return ((bits + 0x1000) & ~0x1FFF).view(self.torch.float32)

        self._mm(rounded(a), rounded(b), out=out)

    def _summed_in_float16(self, a: Any, b: Any, out: Any) -> None:
        step = max(16, -(-a.shape[1] // HALF_SUMS))
        total = self.torch.zeros(out.shape, dtype=out.dtype)
        for at in range(0, a.shape[1], step):
            part = self._mm(a[:, at : at + step].float(), b[at : at + step].float())
            total = (total.float() + part).to(out.dtype)
        self._copy(out, total)

    def _integer(self, a: Any, b: Any, out: Any) -> None:
        self._int_mm(a, b, out=out)


COMPUTE: dict[str, Any] = {
    "bfloat16": Products._by_float32,
    "float16": Products._by_float32,
    "float16_acc16": Products._summed_in_float16,
    "tf32": Products._rounded_to_tf32,
}
