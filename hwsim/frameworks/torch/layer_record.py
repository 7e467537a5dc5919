"""What a model's products were: calls, multiply-adds, errors and overflows of each layer and pass, as numbers and text.

The module knows tensors and results; it knows no setting and no operator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import torch

from hwsim.analysis.running_error import RunningError
from hwsim.datafiles.provenance import LEVELS
from hwsim.frameworks.coverage import CoverageVerdict, hints_for
from hwsim.frameworks.torch.place import SCALED_OPERATIONS
from hwsim.frameworks.torch.plain import plain_product
from hwsim.report.text.library_text import kernel_of
from hwsim.report.text.words import percent, plural

if TYPE_CHECKING:
    from hwsim.analysis.program_times import Times
    from hwsim.frameworks.repeated import Ready
    from hwsim.frameworks.torch.place import Place
    from hwsim.frameworks.torch.run_steps import FunctionCall
    from hwsim.gemm.record import Gemm

MATRIX = 2  # dimensions
SAMPLED_ROWS, SAMPLED_COLUMNS = 8, 64  # of a measured product, spread over all
SAMPLED_MATRICES = 8  # of a measured stack, spread over all
GROUNDS, KERNEL = ("instruction", "order of summation"), "kernel"  # decisions of a record
TIMED = (
    "cycles, us (microseconds): of the products and fused attention alone; softmax, norms, optimizers, other "
    "operations and launches are left out"
)
OTHER_BITS, SAME_BITS = "a chip's kernels may have other bits", "the same bits on all chips"
OF_QUANTISED = (
    "errors of products with scales: from the exact product of the elements times their scales; what quantisation "
    "loses before is not in them"
)
SHOWN_NAMES = 4  # of modules that are not swapped, and of layers with a kernel
#: What has calls simulated that are not caught, by a part of their names.
HINTS = {
    "scaled_dot_product": "for attention's products use torch.nn.attention.sdpa_kernel(SDPBackend.MATH)",
    "_transformer_encoder_layer_fwd": "use torch.backends.mha.set_fastpath_enabled(False)",
    "_native_multi_head_attention": "use torch.backends.mha.set_fastpath_enabled(False)",
}
LEAST_PADDING = 50_000  # products that a report of millions shows
EVERY = 16  # products of a layer and pass: one of them is measured


@dataclass
class LayerRecord:
    """Products of one layer, operation and pass.

    calls; macs: multiply-accumulates; padding_macs: further ones, of convolutions' padding. host_seconds: time that the
    simulation took. cycles, seconds: of the simulated device, where times are kept. measured: calls whose error was
    computed, on some rows and columns, without elements that are not finite: error, plain_error: root mean square of
    ||got - fp64|| / ||fp64||, of the simulated product and of PyTorch's own; largest_error. distance: root mean square
    of ||got - plain|| / ||plain||, plain: PyTorch's own product; of `compared` calls, those whose plain product is not
    zero. overflows: elements of these rows and columns that are infinite or NaN where the fp64 product is finite.
    evidence: the weakest level behind instruction and order of summation ("": of no product); least_confidence: the
    least probability that a library's kernel is the one that was computed, None where no library was asked. kernels:
    calls by the library's kernel and how it divides K.
    """

    calls: int = 0
    macs: int = 0
    padding_macs: int = 0
    host_seconds: float = 0.0
    cycles: int = 0
    seconds: float = 0.0
    overflows: int = 0
    evidence: str = ""
    least_confidence: float | None = None
    kernels: Counter[str] = field(default_factory=Counter)
    errors: RunningError = field(default_factory=RunningError, repr=False)
    plain_errors: RunningError = field(default_factory=RunningError, repr=False)
    distances: RunningError = field(default_factory=RunningError, repr=False)

    @property
    def measured(self) -> int:
        """Calls whose error was computed."""
        return self.errors.count

    @property
    def compared(self) -> int:
        """Calls that were compared with PyTorch's own product."""
        return self.distances.count

    @property
    def error(self) -> float | None:
        """Root mean square error; None where nothing was measured."""
        return self.errors.mean

    @property
    def largest_error(self) -> float | None:
        """The largest error of a call; None where nothing was measured."""
        return self.errors.largest

    @property
    def plain_error(self) -> float | None:
        """The root mean square error of PyTorch's own product."""
        return self.plain_errors.mean

    @property
    def distance(self) -> float | None:
        """Root mean square distance from PyTorch's own product; None where nothing was compared."""
        return self.distances.mean

    def to_dict(self, *, timing: bool = True) -> dict[str, Any]:
        """Plain data; cycles and seconds are None without timing."""
        names = (
            "calls",
            "macs",
            "padding_macs",
            "host_seconds",
            "cycles",
            "seconds",
            "measured",
            "error",
            "plain_error",
        )
        more = ("distance", "largest_error", "overflows", "evidence", "least_confidence")
        untimed = {} if timing else {"cycles": None, "seconds": None}
        values = {name: getattr(self, name) for name in (*names, *more)}
        return values | {"kernels": dict(self.kernels)} | untimed

    def note(self, gemm: Gemm) -> None:
        """Take the evidence of one product's record."""
        decisions = {decision.name: decision for decision in gemm.decisions}
        for name in GROUNDS:
            if name in decisions:
                self.evidence = weaker(self.evidence, decisions[name].evidence)
        kernel = decisions.get(KERNEL)
        if library_kernel := kernel_of(gemm):
            self.kernels[library_kernel] += 1
        self.least_confidence = least(self.least_confidence, None if kernel is None else kernel.confidence)

    def add(self, other: LayerRecord) -> None:
        """Add the products of another record."""
        for entry in fields(self):
            value, more = getattr(self, entry.name), getattr(other, entry.name)
            if isinstance(value, RunningError):
                value.merge(more)
            elif entry.name == "evidence":
                self.evidence = weaker(value, more)
            elif entry.name == "least_confidence":
                self.least_confidence = least(value, more)
            else:
                setattr(self, entry.name, value + more)


class Record:
    """The products of a run, by (layer, operation, pass), and the operations with products that were not caught.

    every: measure the error of the first, and then of each `every`-th product of a layer and pass; 0: of none. timing:
    add up the simulated device's cycles. observer: called with each product's place, operands, result and resolved
    record. attention_observer: called with the place, query, key, value and result of each attention. not_caught: calls
    by name that PyTorch computes; macs_not_caught: multiply-accumulates of these, as far as they are known; macs_plain:
    by layer, those that settings leave to PyTorch ("plain"), as far as they are known. substituted: products by name
    that another kernel than the library's was computed for; substitutes: their multiply-accumulates. unknown_orders:
    calls whose kernel adds in an order that is not known, and macs_unordered. assumed_in: layers of both kinds, by the
    products' name. macs_asked: of products for which a library was asked. own_kernels: calls without products that have
    the order of PyTorch's kernel, by operator. compiled: notes on compiled graphs that ran. not_swapped: {class of
    modules: their names}. reached: layers with calls that the settings decide, beside `layers`. progress: told of each
    product.
    """

    def __init__(self, every: int = EVERY, timing: bool = False) -> None:
        self.every, self.timing = every, timing
        self.layers: dict[tuple[str, str, str], LayerRecord] = {}
        self.not_caught: Counter[str] = Counter()
        self.macs_not_caught: Counter[str] = Counter()
        self.macs_plain: Counter[str] = Counter()
        self.substituted: Counter[str] = Counter()
        self.substitutes: Counter[str] = Counter()
        self.reached: set[str] = set()
        self.unknown_orders: Counter[str] = Counter()
        self.macs_unordered: Counter[str] = Counter()
        self.assumed_in: dict[str, dict[str, None]] = {}
        self.macs_asked = 0
        self.macs_doubted = 0.0
        self.own_kernels: Counter[str] = Counter()
        self.own_evidence: dict[str, str] = {}
        self.here: Counter[str] = Counter()
        self.here_same: Counter[str] = Counter()
        self.compiled: Sequence[str] = ()
        self.not_swapped: dict[str, list[str]] = {}
        self.observer: Any = None
        self.attention_observer: Any = None
        self.function_observer: Callable[[FunctionCall], None] | None = None
        self.progress: Callable[[int], None] | None = None

    def left_out(self, name: str, macs: int, layer: str = "") -> None:
        """Count a product that the unit's own order stands for: the library's kernel for it is not known."""
        self.substituted[name] += 1
        self.assumed_in.setdefault(name, {})[layer or "-"] = None
        self.substitutes[name] += macs

    def unordered(self, name: str, macs: int, layer: str = "") -> None:
        """Count a product of a library's kernel whose order of summation is not known: the unit's own stands for it."""
        self.unknown_orders[name] += 1
        self.assumed_in.setdefault(name, {})[layer or "-"] = None
        self.macs_unordered[name] += macs

    def ran_own(self, name: str, evidence: str) -> None:
        """Count a call without products that has the bits of PyTorch's kernel, and the level behind them."""
        self.own_kernels[name] += 1
        self.own_evidence[name] = weaker(self.own_evidence.get(name, ""), evidence)

    def ran_here(self, name: str, *, has_same_bits: bool) -> None:
        """Count a call without products that this CPU computed. has_same_bits: no chip has other bits."""
        (self.here_same if has_same_bits else self.here)[name] += 1

    def asked(self, macs: int, confidence: float | None, *, is_ordered: bool) -> None:
        """Count a product for which a library was asked. confidence: the probability that the kernel is the library's;
        None: nobody gives one. is_ordered: the kernel's order is known.
        """
        self.macs_asked += macs
        if is_ordered and confidence is not None:
            self.macs_doubted += macs * (1 - confidence)

    def passed_on(self, name: str, macs: int | None) -> None:
        """Count a call that PyTorch computes; macs: None where nobody counts them."""
        self.not_caught[name] += 1
        if macs is not None:
            self.macs_not_caught[name] += macs

    def left_plain(self, layer: str, macs: int | None) -> None:
        """Count a product that the settings leave to PyTorch; macs: None where nobody counts them."""
        self.macs_plain[layer] += macs or 0

    @property
    def layers_with_effect(self) -> set[str]:
        """Layers with calls that the settings decide: products, and functions that may have a chip's bits."""
        return self.reached | {layer for layer, _, _ in self.layers} | set(self.macs_plain)

    @property
    def computed_share(self) -> float | None:
        """The share of all multiply-accumulates that hwsim computed, in any order; None: there were none."""
        everything = self._everything
        return self.total().macs / everything if everything else None

    @property
    def library_share(self) -> float | None:
        """The share of all multiply-accumulates that hwsim computed in the order of the library's kernel; None: no
        product asked a library.
        """
        elsewhere = self.substitutes.total() + self.macs_unordered.total()
        return (self.macs_asked - elsewhere) / self._everything if self.macs_asked else None

    @property
    def weighed_library_share(self) -> float | None:
        """`library_share`, each product weighed by the probability that the kernel is the library's."""
        share = self.library_share
        return None if share is None else share - self.macs_doubted / self._everything

    @property
    def _everything(self) -> int:
        """All multiply-accumulates that were counted."""
        return self.total().macs + self.macs_not_caught.total() + self.macs_plain.total()

    @property
    def uncounted(self) -> list[str]:
        """Names of calls that were left to PyTorch and whose multiply-accumulates nobody counted."""
        return sorted(name for name in self.not_caught if name not in self.macs_not_caught)

    @property
    def verdict(self) -> CoverageVerdict:
        """How much of the model was simulated, and how well its bits are known."""
        weakest, least_sure = self.total(), ""
        evidence_layer = ""
        for (layer, _, _), entry in self.layers.items():
            if not evidence_layer and entry.evidence == weakest.evidence:
                evidence_layer = layer
            if not least_sure and entry.least_confidence == weakest.least_confidence:
                least_sure = layer
        is_alike = len({entry.evidence for entry in self.layers.values()}) == 1
        return CoverageVerdict(
            computed=self.computed_share,
            in_order=self.library_share,
            in_order_weighed=self.weighed_library_share,
            uncounted=tuple(self.uncounted),
            evidence=weakest.evidence,
            evidence_layer="" if is_alike else evidence_layer,
            least_confidence=weakest.least_confidence,
            least_confidence_layer=least_sure,
            not_caught=dict(self.not_caught),
            substituted=dict(self.substituted),
            unknown_orders=dict(self.unknown_orders),
            hints=(
                *hints_for(list(self.not_caught), HINTS),
                *self.compiled,
            ),
            left=self.macs_plain.total() / self._everything if self._everything else 0.0,
        )

    def measures(self, place: Place) -> bool:
        """Whether the error of the next product of a place is computed: of `sample`'s rows and columns."""
        return self.every > 0 and self._layer(place).calls % self.every == 0

    def _layer(self, place: Place) -> LayerRecord:
        return self.layers.setdefault((place.layer, place.operation, place.stage), LayerRecord())

    def product(
        self,
        place: Place,
        a: torch.Tensor,
        b: torch.Tensor,
        c: torch.Tensor | None,
        alpha: float,
        beta: float,
        out: torch.Tensor,
        ready: Ready,
        host_seconds: float,
        padding: int = 0,
        *,
        sampled: tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> None:
        """Add one product; arguments as of hwsim.frameworks.torch.multiplication.multiply.

        sampled: the values of `sample`'s rows of A and columns of B, where a and b may have their sizes alone.
        """
        entry = self._layer(place)
        if self.measures(place):
            self._measure(entry, sampled_operands(a, b) if sampled is None else sampled, c, alpha, beta, out)
        entry.calls += 1
        entry.macs += out.numel() * a.shape[-1] - padding
        entry.padding_macs += padding
        entry.host_seconds += host_seconds
        entry.cycles += ready.cycles or 0
        entry.seconds += ready.seconds or 0.0  # a library's kernel may have seconds and no cycles
        entry.note(ready.gemm)
        if self.progress is not None:
            self.progress(out.numel() * a.shape[-1])
        if self.observer is not None:
            self.observer(place, a, b, out, ready.gemm)

    def timed(self, place: Place, times: Times) -> None:
        """Add the time of a fused kernel, whose products are added beside it."""
        entry = self._layer(place)
        entry.cycles += times.cycles or 0
        entry.seconds += times.seconds or 0.0

    @staticmethod
    def _measure(
        entry: LayerRecord,
        sampled: tuple[torch.Tensor, torch.Tensor],
        c: torch.Tensor | None,
        alpha: float,
        beta: float,
        out: torch.Tensor,
    ) -> None:
        if out.dtype == torch.int32:
            return
        left, right = sampled
        rows, columns = sample(*out.shape[-2:])
        added = None if c is None or not beta else _some(c.expand(out.shape))[..., rows, :][..., columns]
        got = _some(out)[..., rows, :][..., columns].double()
        exact = alpha * (left.double() @ right.double())
        if added is not None:
            exact = exact + beta * added.double()
        plain = plain_product(left, right, added, alpha, beta, out.dtype).double()
        is_finite, has_value = torch.isfinite(exact), torch.isfinite(got)
        entry.overflows += int((is_finite & ~has_value).sum())
        norm = _norm(exact[is_finite])
        if not norm:
            return
        error = _norm((got - exact)[is_finite & has_value]) / norm
        plain_error = _norm((plain - exact)[is_finite & torch.isfinite(plain)]) / norm
        entry.errors.add(error)
        entry.plain_errors.add(plain_error)
        both = has_value & torch.isfinite(plain)
        size = _norm(plain[both])
        if size:
            entry.distances.add(_norm((got - plain)[both]) / size)

    def total(self) -> LayerRecord:
        """The sum over all layers and passes."""
        whole = LayerRecord()
        for entry in self.layers.values():
            whole.add(entry)
        return whole

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the layers, their total, what was not caught by name, and shares of the MACs."""
        rows = [
            {"layer": layer, "operation": operation, "pass": stage, **entry.to_dict(timing=self.timing)}
            for (layer, operation, stage), entry in self.layers.items()
        ]
        return {
            "layers": rows,
            "total": self.total().to_dict(timing=self.timing),
            "not_caught": dict(self.not_caught),
            "macs_not_caught": dict(self.macs_not_caught),
            "macs_plain": dict(self.macs_plain),
            "substituted": dict(self.substituted),
            "substitutes": dict(self.substitutes),
            "unknown_orders": dict(self.unknown_orders),
            "own_kernels": {
                name: {"calls": count, "evidence": self.own_evidence[name]} for name, count in self.own_kernels.items()
            },
            "not_swapped": {kind: list(names) for kind, names in self.not_swapped.items()},
            "computed_share": self.computed_share,
            "computed_here": {"may_differ": dict(self.here), "same_bits": dict(self.here_same)},
            "library_share": self.library_share,
            "weighed_library_share": self.weighed_library_share,
            "verdict": self.verdict.to_dict(),
        }

    def text(self) -> str:
        """A table: one line for each layer, operation and pass. error, PyTorch's: of the simulated and of PyTorch's own
        product against fp64; distance: of the one from the other.
        """
        titles = ["layer", "operation", "pass", "calls", "MMAC", "error", "PyTorch's", "distance", "overflows"]
        titles += ["cycles", "us"] if self.timing else []
        rows = [titles]
        named = [*self.layers.items(), (("all", "", ""), self.total())]
        for (layer, operation, stage), entry in named:
            row = [layer or "-", operation, stage, str(entry.calls), f"{entry.macs / 1e6:.1f}"]
            row += [
                "-" if error is None else f"{error:.2e}" for error in (entry.error, entry.plain_error, entry.distance)
            ]
            row += [str(entry.overflows), *([str(entry.cycles), f"{entry.seconds * 1e6:,.2f}"] if self.timing else [])]
            rows.append(row)
        widths = [max(len(row[i]) for row in rows) for i in range(len(titles))]
        is_text = (True, True, True, *(False for _ in titles[3:]))
        lines = [
            "  ".join(
                cell.ljust(w) if left else cell.rjust(w) for cell, w, left in zip(row, widths, is_text, strict=True)
            ).rstrip()
            for row in rows
        ]
        is_scaled = any(operation in SCALED_OPERATIONS for _, operation, _ in self.layers)
        notes = [*([OF_QUANTISED] if is_scaled else []), *([TIMED] if self.timing else [])]
        return "\n".join([*lines, *notes, *self._kernels(), *self.details()])

    def _where(self, name: str) -> str:
        """The layers of products in an assumed order, in brackets; "": outside of modules alone."""
        layers = list(self.assumed_in.get(name, ()))
        return "" if layers in ([], ["-"]) else f" ({_some_names(layers)})"

    def _kernels(self) -> list[str]:
        """A line for each kernel of a library: how often it ran, and in which layers."""
        lines = []
        for name, count in sorted(self.total().kernels.items()):
            layers = {layer or "-": None for (layer, _, _), entry in self.layers.items() if name in entry.kernels}
            lines.append(f"kernel {name}: {plural(count, 'call')} ({_some_names(list(layers))})")
        return lines

    def remarks(self) -> list[str]:
        """What the table does not say: the verdict, then each kind of call that was not simulated."""
        return [str(self.verdict), *self.details()]

    def details(self) -> list[str]:
        """A line for each kind of call that was not simulated by its kernel, with its share of the MACs; lines for
        products of padding, and for operators without products.
        """
        padding = self.total().padding_macs
        lines = [f"zeros of padding: {padding / 1e6:.1f} MMAC beside these"] if padding >= LEAST_PADDING else []

        def _counted(name: str, count: int, macs: int, noun: str = "product") -> str:
            share = f", {percent(macs / self._everything)} of the MACs" if macs else ""
            return f"{name}, {plural(count, noun)}{share}"

        for name, count in sorted(self.substituted.items()):
            lines.append(f"kernel not known: {_counted(name, count, self.substitutes[name])}{self._where(name)}")
        for name, count in sorted(self.not_caught.items()):
            lines.append(f"not caught: {_counted(name, count, self.macs_not_caught[name], 'call')}")
        for layer, macs in sorted(self.macs_plain.items()):
            where = f"layer {layer}" if layer else "products outside of modules"
            lines += (
                [f'left to PyTorch ("plain"): {where}, {percent(macs / self._everything)} of the MACs'] if macs else []
            )
        for name, count in sorted(self.unknown_orders.items()):
            lines.append(f"order not known: {_counted(name, count, self.macs_unordered[name])}{self._where(name)}")
        of_level: dict[str, list[str]] = {}
        for name, count in sorted(self.own_kernels.items()):
            of_level.setdefault(self.own_evidence[name], []).append(_counted(name, count, 0, "call"))
        for level, calls in of_level.items():
            lines.append(f"as PyTorch's kernel computes it, evidence of the bits {level}: {'; '.join(calls)}")
        if of_level and any(stage != "forward" for _, _, stage in self.layers):
            lines.append("not simulated: the gradients of these functions, which are PyTorch's for CPUs")
        lines += self._computed_here()
        for kind, names in sorted(self.not_swapped.items()):
            lines.append(f"not swapped: {len(names)} of {kind} ({_some_names(names)})")
        return lines

    def _computed_here(self) -> list[str]:
        """The line that names operators which this CPU computed."""
        said = [
            f"{', '.join(sorted(names))} ({what})"
            for names, what in ((self.here, OTHER_BITS), (self.here_same, SAME_BITS))
            if names
        ]
        return [f"computed by this CPU: {'; '.join(said)}"] if said else []


def _some_names(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN_NAMES]) + (", ..." if len(names) > SHOWN_NAMES else "")


def weaker(left: str, right: str) -> str:
    """The weaker of two evidence levels; "": none."""
    return max((level for level in (left, right) if level), key=LEVELS.index, default="")


def least(left: float | None, right: float | None) -> float | None:
    """The smaller of two numbers, where there are any."""
    return min((number for number in (left, right) if number is not None), default=None)


def _norm(x: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(x))


def sample(m: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows and columns of a measured product, m x n."""
    return _spread(m, SAMPLED_ROWS), _spread(n, SAMPLED_COLUMNS)


def sampled_operands(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows of A and columns of B of `sample`, of some matrices of stacks."""
    left, right = _some(a), _some(b)
    rows, columns = sample(left.shape[-2], right.shape[-1])
    return left[..., rows, :], right[..., columns]


def _spread(size: int, most: int) -> torch.Tensor:
    """At most `most` indices, spread over `size`."""
    return torch.linspace(0, size - 1, min(size, most)).long()


def _some(x: torch.Tensor) -> torch.Tensor:
    """A matrix, or matrices spread over a stack of them, as one stack."""
    return x if x.dim() == MATRIX else x.flatten(0, -3)[_spread(x.shape[:-2].numel(), SAMPLED_MATRICES)]
