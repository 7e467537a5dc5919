"""`hwsim.attention`: attention of arrays by the kernel that PyTorch runs on a chip, and what it returns.

It knows shapes, dtypes and backends by name; no order of summation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.backend.environment import in_default_environment
from hwsim.compute.attention_kernel import AttentionKernel, kernel_of, widest_head
from hwsim.devices import load
from hwsim.errors import InputError, UnsupportedError, nearest
from hwsim.evaluate.attending import FORMATS
from hwsim.formats import array_dtype, array_of, codes_of, format_of
from hwsim.host.arrays import given_array
from hwsim.host.threads import worker_count
from hwsim.libraries.gemm_call import PYTORCH
from hwsim.libraries.published.attention_kernels import CUDNN, EFFICIENT, FAMILIES, FLASH
from hwsim.libraries.pytorch.attention import DENSE, AttentionKind, candidates, first_fit
from hwsim.libraries.pytorch.routes import pytorch

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.gemm.attention_order import AttentionOrder

AnyArray = NDArray[Any]
BACKENDS = (FLASH, EFFICIENT, CUDNN)
STACK = 3  # dimensions: heads, rows, width
IN_TORCH = 'hwsim.torch.emulate(device=..., library="pytorch") computes it by the device\'s unit'


@dataclass(frozen=True, slots=True, eq=False)
class AttentionResult:
    """out: of the shape (..., heads, queries, width of the value), in the operands' dtype. backend: of PyTorch, whose
    kernel computed it. device: its name. order: of the kernel. evidence: the weakest level behind the bits.
    """

    out: AnyArray
    backend: str
    device: str
    order: AttentionOrder
    evidence: str

    @property
    def kernel(self) -> str:
        """The kernel's name."""
        return self.order.kernel

    def __str__(self) -> str:
        order = self.order
        parts = "" if order.parts == 1 else f", in {order.parts} parts that are joined"
        direction = "last block first" if order.descending else "first block first"
        return (
            f"attention on {self.device}: {self.out.dtype} {self.out.shape}\n"
            f"{self.backend}: {order.kernel}\n"
            f"blocks of {order.keys} keys, {direction}{parts}\n"
            f"evidence: {self.evidence}; the order is from: {order.source}"
        )

    def __repr__(self) -> str:
        return (
            f"AttentionResult(out={self.out.dtype} {self.out.shape}, backend={self.backend!r}, "
            f"kernel={self.kernel!r}, device={self.device!r}, evidence={self.evidence!r})"
        )


@in_default_environment
def attention(
    query: AnyArray,
    key: AnyArray,
    value: AnyArray,
    *,
    device: str | Path | Mapping[str, Any] | Device = "h100",
    library: str = PYTORCH,
    backend: str | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> AttentionResult:
    """Scaled dot-product attention, softmax(scale query key^T) value, with the bits of the kernel that PyTorch runs.

    Products by the chip's matrix instruction, powers by its special functions, sums in the kernel's order.

    Args:
        query: (..., heads, queries, width), float16 or ml_dtypes.bfloat16. The leading dimensions are the batch.
        key: (..., key heads, keys, width), of the same dtype and leading dimensions. Its heads divide the query's
            (GQA): so many consecutive heads of the query share a head of the key.
        value: (..., key heads, keys, width of the value), likewise.
        device: a name, the path of a YAML file, a mapping of that shape, or a Device; of the families sm80 and sm90.
        library: "pytorch", whose choice of a backend counts.
        backend: "FLASH_ATTENTION", "EFFICIENT_ATTENTION" or "CUDNN_ATTENTION"; None: the first that takes the call, in
            PyTorch's order on the device.
        is_causal: query i sees the keys 0 to i.
        scale: of the scores, without a unit; None: 1 / sqrt(width).

    Returns:
        An AttentionResult: `out`, an array (..., heads, queries, width of the value) of the operands' dtype; `backend`,
        `kernel`, `order`, `evidence`.

    Raises:
        InputError: shapes or dtypes that do not fit, an unknown library or backend, a scale that is not finite.
        UnsupportedError: a call that the backend does not take, or whose order is not known: other families, wider
            heads, the math form. `hwsim.torch.emulate` computes these in the order of the device's unit.

    Source: FlashAttention-2 and the memory-efficient kernel by PyTorch's source, cuDNN's kernel by captures of an H100
    (hwsim/libraries/published/attention_kernels.py).
    """
    chip = load(device)
    if library != PYTORCH:
        raise InputError(f"attention: library = {library!r}; allowed: {PYTORCH!r}")
    if backend is not None and backend not in BACKENDS:
        raise _unknown(str(backend))
    operands = {name: given_array(name, x) for name, x in (("query", query), ("key", key), ("value", value))}
    format, groups = _format(operands), _groups(operands)
    q, k, v = operands.values()
    taken = _backend(chip, format, [x.shape for x in (q, k, v)], groups, backend, is_causal)
    factor = _factor(scale, q.shape[-1])
    stacks = [codes_of(np.ascontiguousarray(x), format_of(format)).reshape(-1, *x.shape[-2:]) for x in (q, k, v)]
    stacks[1:] = [np.repeat(x, groups, 0) for x in stacks[1:]]
    kernel: AttentionKernel = kernel_of(
        chip, taken, format, [x.shape for x in stacks], groups=groups, is_causal=bool(is_causal)
    )
    codes = kernel.attend(*stacks, factor=factor, threads=worker_count())
    out = array_of(codes, format_of(format)).reshape(*q.shape[:-1], v.shape[-1])
    return AttentionResult(out, taken, chip.name, kernel.order, kernel.evidence.value)


def _unknown(backend: str) -> InputError | UnsupportedError:
    if backend == pytorch().attention.math:
        return UnsupportedError(f"attention: {backend} is no kernel but a form of several products; {IN_TORCH}")
    return InputError(f"attention: backend = {backend!r}; allowed: {', '.join(BACKENDS)}{nearest(backend, BACKENDS)}")


def _format(operands: Mapping[str, AnyArray]) -> str:
    """The operands' format. Raises InputError unless they have one that the kernels take."""
    dtypes = {name: x.dtype for name, x in operands.items()}
    for format in FORMATS:
        if all(dtype == array_dtype(format_of(format)) for dtype in dtypes.values()):
            return format
    listed = ", ".join(f"{name} {dtype}" for name, dtype in dtypes.items())
    raise InputError(
        f"attention: got {listed}; allowed: float16, or ml_dtypes.bfloat16, for all three. "
        f"Of other formats no kernel's order is known; {IN_TORCH}"
    )


def _groups(operands: Mapping[str, AnyArray]) -> int:
    """Heads of the query that share a head of the key. Raises InputError for shapes that do not fit."""
    shapes = {name: x.shape for name, x in operands.items()}
    listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
    query, key, value = shapes.values()
    if min(map(len, shapes.values())) < STACK or 0 in (*query, *key, *value):
        wrong = "each is (..., heads, rows, width), without a dimension of 0"
    elif not query[:-3] == key[:-3] == value[:-3]:
        wrong = "the leading dimensions are equal"
    elif key[:-1] != value[:-1]:
        wrong = "key and value have as many heads and rows"
    elif query[-1] != key[-1]:
        wrong = "query and key are equally wide"
    elif query[-3] % key[-3]:
        wrong = "the heads of key and value divide the query's"
    else:
        return int(query[-3] // key[-3])
    raise InputError(f"attention: got {listed}; {wrong}")


def _backend(
    chip: Device, format: str, shapes: list[tuple[int, ...]], groups: int, wanted: str | None, is_causal: bool
) -> str:
    """The backend that runs, or the one that was asked for. Raises UnsupportedError where it does not take the call, or
    its bits are not known.
    """
    if chip.family not in FAMILIES:
        raise UnsupportedError(
            f"attention: device {chip.name} is of the family {chip.family}; the kernels' orders are known of the "
            f"families {', '.join(FAMILIES)}. {IN_TORCH}"
        )
    (queries, width), (keys, _), (_, value_width) = (shape[-2:] for shape in shapes)
    math_form = pytorch().attention.math
    kind = AttentionKind(format, DENSE, has_mask=False, is_causal=is_causal, is_by_rows=True, is_grouped=groups > 1)
    options = candidates(kind, chip.name, chip.family, order=None if wanted is None else (wanted, math_form))
    taken = first_fit(options, width, value_width, queries, keys)
    call = f"heads of {width} and {value_width} elements, {queries} queries and {keys} keys"
    if taken == math_form:
        said = "PyTorch runs its math form, no fused kernel," if wanted is None else f"{wanted} is not there"
        more = f"{', causal' if is_causal else ''}{', shared heads of key and value' if groups > 1 else ''}"
        raise UnsupportedError(f"attention: {said} for {call}{more} on {chip.name}. {IN_TORCH}")
    widest = widest_head(chip, taken, format)
    if max(width, value_width) > widest:
        known = f"known of heads up to {widest} elements; got {call}" if widest else "not known"
        raise UnsupportedError(f"attention: the order of {taken} on {chip.name} is {known}. {IN_TORCH}")
    return taken


def _factor(scale: float | None, width: int) -> float:
    if scale is None:
        return 1 / math.sqrt(width)
    if isinstance(scale, bool) or not isinstance(scale, Real) or not math.isfinite(scale):
        raise InputError(f"attention: scale = {scale!r}; allowed: a finite number, or None for 1 / sqrt(width)")
    return float(scale)
