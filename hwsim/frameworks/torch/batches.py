"""`hwsim.torch.invariance`: which batch sizes give a sample's rows the same bits, layer by layer.

The module runs a model on batches and compares the orders in which its products add; what an order is, is others'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from hwsim.errors import InputError
from hwsim.frameworks.torch.forward_pass import called, forward_pass
from hwsim.frameworks.torch.multiplication import unknown_order
from hwsim.frameworks.torch.tensors import format_name
from hwsim.report.text.library_text import kernel_of
from hwsim.report.text.words import plural, run_text, runs
from hwsim.studies.invariance import record_label

if TYPE_CHECKING:
    from hwsim.frameworks.settings import Settings
    from hwsim.frameworks.torch.place import Place
    from hwsim.gemm.record import Gemm

MATRIX = 2  # dimensions


@dataclass(frozen=True)
class LayerInvariance:
    """One product of the model. classes: batch sizes, those together that add the first sample's elements in the same
    order, as `hwsim.invariance` has it: equal bits for all operands. Other orders mostly give other bits. rows: of the
    first sample. kernels: by batch size, a library's kernel, or the order of summation, and how it divides K. unknown:
    batch sizes whose order of summation is not known; each is a class of its own. operands_differ: batch sizes whose
    operands are others, by what PyTorch computes between the products. confidences: by batch size, the probability that
    the kernel is the library's; without sizes for which no library chose it.
    """

    layer: str
    operation: str
    rows: int
    classes: tuple[tuple[int, ...], ...]
    kernels: Mapping[int, str]
    operands_differ: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()
    confidences: Mapping[int, float] = field(default_factory=dict)

    @property
    def is_invariant(self) -> bool | None:
        """Whether all batch sizes add in the same order; None: not known."""
        if len(self.classes) == 1:
            return True
        return None if len(self.classes) - len(self.unknown) < 2 else False


@dataclass(frozen=True)
class BatchInvariance:
    """The answer of `invariance`. side: the settings in words. layers: every product in order. remarks: PyTorch's
    switches, and a report's remarks.
    """

    side: str
    batches: tuple[int, ...]
    layers: tuple[LayerInvariance, ...]
    remarks: tuple[str, ...] = ()

    @property
    def is_invariant(self) -> bool | None:
        """Whether all products add in the same order for all batch sizes; None: not known."""
        answers = [layer.is_invariant for layer in self.layers]
        return False if False in answers else None if None in answers else True

    @property
    def classes(self) -> tuple[tuple[int, ...], ...]:
        """Batch sizes with which the whole model gives a sample the same bits, as far as its products decide it."""
        places = [{batch: at for at, members in enumerate(layer.classes) for batch in members} for layer in self.layers]
        whole: dict[tuple[int, ...], list[int]] = {}
        for batch in self.batches:
            whole.setdefault(tuple(place[batch] for place in places), []).append(batch)
        return tuple(map(tuple, whole.values()))

    def __str__(self) -> str:
        lines = [self.side, *self.remarks]
        of_all = f"all {len(self.layers)} products" if len(self.layers) > 1 else "the product"
        lines.append(f"batch sizes with equal bits in {of_all}: {_classes(self.classes)}")
        lines.append("rows: of the product with a batch of one")
        lines.append(f"{'layer':<32} {'operation':<18} {'rows':>6}  batch sizes with equal bits; kernels")
        for layer in self.layers:
            kernels = "; ".join(_kernels(layer, members) for members in layer.classes)
            sure = list(layer.confidences.values())
            right = f"; right with a probability of {min(sure):.2f} at least" if sure else ""
            unlike = (
                f"; other operands with {', '.join(map(str, layer.operands_differ))}" if layer.operands_differ else ""
            )
            where = f"{layer.layer or '-':<32} {layer.operation:<18} {layer.rows:>6}"
            lines.append(f"{where}  {kernels}{right}{unlike}")
        unknown = sum(bool(layer.unknown) for layer in self.layers)
        if unknown:
            lines.append(
                f"order not known in {plural(unknown, 'product')}: whether their bits are equal is not known; "
                "`hwsim library record` asks the library on a GPU"
            )
        if not self.is_invariant:
            lines += [
                "What to do for equal bits:",
                f"  pad each batch to {max(self.batches)}, and drop the samples added",
            ]
        return "\n".join(lines)


def _kernels(layer: LayerInvariance, members: Sequence[int]) -> str:
    """The sizes of a class, and each kernel that they have."""
    return f"{_classes([members])}: {' or '.join(dict.fromkeys(layer.kernels[size] for size in members))}"


def _classes(classes: Sequence[Sequence[int]]) -> str:
    return " | ".join(", ".join(_run(*run) for run in runs(members)) for members in classes)


def _run(first: int, last: int) -> str:
    """Neighbouring sizes; two of them are no range."""
    return f"{first}, {last}" if last == first + 1 else run_text(first, last)


@dataclass
class _FollowedProduct:
    """One product with a batch of one: its first operand and its result.

    labels, kernels: by batch size, the order of summation and the kernel in words. unknown: batch sizes whose order is
    not known. operands_differ: batch sizes whose first sample has another operand.
    """

    place: Place
    operand: torch.Tensor
    rows: torch.Tensor
    labels: dict[int, Any] = field(default_factory=dict)
    kernels: dict[int, str] = field(default_factory=dict)
    unknown: list[int] = field(default_factory=list)
    operands_differ: list[int] = field(default_factory=list)
    confidences: dict[int, float] = field(default_factory=dict)


@dataclass
class _Follower:
    """Sees the products of one batch size, and compares them with those of a batch of one."""

    products: list[_FollowedProduct]
    settings: Settings
    size: int
    is_first: bool
    count: int = 0

    def __call__(self, place: Place, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, gemm: Gemm) -> None:
        """One product: its first sample's rows are noted, and replaced by those of a batch of one."""
        if self.is_first:
            self.products.append(_FollowedProduct(place, a.clone(), out.clone()))
            return
        where = f"{place.layer or '(outside of modules)'}, {place.operation}"
        if self.count >= len(self.products) or not self._is_like(place, out):
            raise InputError(
                f"{where}: product {self.count + 1} of batch size {self.size}, of shape {tuple(out.shape)}, has no "
                "like of batch size 1; its first dimension must count samples, or all samples share it, and no "
                "operation depend on their number"
            )
        product = self.products[self.count]
        is_shared = out.shape == product.rows.shape  # by all samples, as the angles of positions
        taken = (slice(None),) if is_shared else _first_samples(len(out), self.size)
        operands = [torch.equal(a[part], product.operand) for part in taken]
        part = taken[operands.index(True) if any(operands) else 0]
        if not any(operands):
            product.operands_differ.append(self.size)
        kernel = gemm.decided("kernel")
        product.kernels[self.size] = kernel_of(gemm) or _order_text(gemm)
        if kernel is not None and kernel.confidence is not None:
            product.confidences[self.size] = kernel.confidence
        if unknown_order(self.settings, place, format_name(a.dtype), gemm):
            product.unknown.append(self.size)
            product.labels[self.size] = ("unknown", self.size)
            product.kernels[self.size] += ", order not known"
        else:
            rows = range(out.shape[-2])[part] if out.dim() == MATRIX else range(out.shape[-2])
            arguments = self.settings.of(place.layer, place.stage).arguments
            assert arguments is not None
            product.labels[self.size] = record_label(arguments["device"], gemm, rows)
        out[part] = product.rows
        self.count += 1

    def _is_like(self, place: Place, out: torch.Tensor) -> bool:
        product = self.products[self.count]
        is_same = (product.place.layer, product.place.operation) == (place.layer, place.operation)
        count, *rest = product.rows.shape
        return is_same and out.shape in (product.rows.shape, (count * self.size, *rest))


def _order_text(gemm: Gemm) -> str:
    order = gemm.decided("order of summation")
    assert order is not None  # of every resolved record
    return str(order.value)


def _first_samples(count: int, size: int) -> tuple[slice, slice]:
    """Where the first of `size` samples may lie among `count` rows or matrices: one after another, or in turn."""
    return slice(0, count // size), slice(0, count, size)


def invariance(model: Callable[..., Any], inputs: Any, batches: Sequence[int], **arguments: Any) -> BatchInvariance:
    """Run a model's forward pass with several batch sizes, and compare in which order each product adds the elements of
    the first sample's rows.

    After each product the rows that a batch of one gives are put in the place of the others', so that every product has
    the same operands for the first sample with each size, and a layer's classes are its own.

    Args:
        model: a module in eval mode, or a function. Its first sample must not depend on the others.
        inputs: a tensor, a tuple or a mapping of tensors, whose first dimension counts samples; these are repeated.
        batches: the batch sizes.
        arguments: as of `emulate`.

    Raises:
        InputError: a product that has no like in a batch of one, or a pattern of `modules` that matches no module; and
            as `emulate`.
    """
    if not isinstance(batches, Iterable):
        raise InputError(f"batches = {batches!r}; allowed: integers of at least 1, as a list")
    sizes = tuple(dict.fromkeys(batches))
    if not sizes or any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in sizes):
        raise InputError(f"batches = {batches!r}; allowed: integers of at least 1")
    products: list[_FollowedProduct] = []
    side = ""
    remarks: tuple[str, ...] = ()
    for index, size in enumerate((1, *sizes)):
        with forward_pass(model, **arguments) as run:
            follower = _Follower(products, run.settings, size, index == 0)
            run.record.observer = follower
            called(model, _repeated(inputs, size))
        if index == 0:
            switches = () if run.settings.switches is None else (run.settings.switches.text,)
            side, remarks = run.title, (*switches, *run.record.remarks())
        elif follower.count != len(products):
            raise InputError(f"batch sizes 1 and {size} have {len(products)} and {follower.count} products")
    return BatchInvariance(side, sizes, tuple(map(_layer, products)), remarks)


def _layer(product: _FollowedProduct) -> LayerInvariance:
    classes: dict[Any, list[int]] = {}
    for batch, label in product.labels.items():
        classes.setdefault(label, []).append(batch)
    place = product.place
    return LayerInvariance(
        layer=place.layer,
        operation=place.operation,
        rows=product.rows.numel() // max(product.rows.shape[-1], 1),
        classes=tuple(map(tuple, classes.values())),
        kernels=dict(product.kernels),
        operands_differ=tuple(product.operands_differ),
        unknown=tuple(product.unknown),
        confidences=dict(product.confidences),
    )


def _repeated(inputs: Any, size: int) -> Any:
    """Inputs of `size` samples: the given ones, again and again."""
    if isinstance(inputs, Mapping):
        return {name: _repeated(value, size) for name, value in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(_repeated(value, size) for value in inputs)
    if not isinstance(inputs, torch.Tensor) or not inputs.dim():
        return inputs
    return inputs[torch.arange(size) % inputs.shape[0]]


__all__ = ["BatchInvariance", "LayerInvariance", "invariance"]
