"""A call of attention on arrays: checked, resolved into the record of its kernel, and its bits by evaluator or program.

It knows shapes, dtypes and backends by name; no order of summation and no cycle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.backend.cpu import CPU
from hwsim.compute.attention_kernel import AttentionKernel, kernel_of, widest_head
from hwsim.compute.math_kernel import FORMATS as MATH_FORMATS
from hwsim.compute.math_kernel import MathKernel, has_math_form, math_kernel_of
from hwsim.compute.timed_attention import TimedAttention
from hwsim.dataflows.attention.attention_program import DESCALES
from hwsim.devices import at_clock, load
from hwsim.errors import InputError, UnsupportedError, nearest
from hwsim.evaluate.attending import Descale
from hwsim.evaluate.attending_need import bytes_needed
from hwsim.formats import array_dtype, array_of, codes_of, format_of
from hwsim.gemm.attention_record import AnyAttention, Mask, is_of_math
from hwsim.host.arrays import given_array
from hwsim.host.memory import check_memory
from hwsim.libraries.gemm_call import PYTORCH
from hwsim.libraries.published.attention_kernels import (
    AUTHORS,
    CUDNN,
    EFFICIENT,
    FAMILIES,
    FLASH,
    OF_ONE_QUERY,
    WITH_MASKS,
)
from hwsim.libraries.published.flash_attention import FORMAT_OF_8_BITS, STEP, STEPS, refused
from hwsim.libraries.pytorch.attention import DENSE, AttentionKind, candidates, first_fit
from hwsim.libraries.pytorch.routes import pytorch
from hwsim.machines import functional
from hwsim.machines.need import bytes_needed as program_need
from hwsim.machines.need import bytes_of_arrays
from hwsim.program.ir import Program

if TYPE_CHECKING:
    from hwsim.devices.device import Device

AnyArray = NDArray[Any]
MATH = pytorch().attention.math
BACKENDS = (FLASH, EFFICIENT, CUDNN, MATH)
BACKEND_ENDING = "_ATTENTION"
LIBRARIES = (PYTORCH, *AUTHORS)
STACK = 3  # dimensions: heads, rows, width
IN_TORCH = 'hwsim.torch.emulate(device=..., library="pytorch") computes it by the device\'s unit'
MOST_SCALE = float(np.finfo(np.float32).max) / 2  # log2(e) times it is finite, too
SCORE_BYTES = 4  # of all scores, which the functional machine keeps
LESS = "attend to fewer heads or rows at a time; cycles alone (exact=False) need none of it"


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """A checked call. operands: query, key and value, of the shapes that the user gave. mask: codes (heads of all
    sequences or 1, queries, keys), which are added to the scores. backend: of PyTorch, or the
    library where that is another. shapes: (heads, rows, width) of the operands, with as many heads each; groups: heads
    of the query that share a head of the key. factor: of the scores. descale: factors of the key's heads, with 8 bits.
    """

    device: Device
    operands: tuple[AnyArray, AnyArray, AnyArray]
    mask: AnyArray | None
    backend: str
    kernel: AttentionKernel | MathKernel
    shapes: tuple[tuple[int, int, int], ...]
    groups: int
    factor: float
    descale: Descale | None = None

    @cached_property
    def record(self) -> AnyAttention:
        """The attention as data."""
        return self.kernel.record(self.shapes, groups=self.groups, factor=self.factor, mask=self._mask)

    @cached_property
    def timed(self) -> TimedAttention:
        """The kernel's program and its times."""
        return self.kernel.timed(self.shapes, groups=self.groups, factor=self.factor, mask=self._mask)

    @property
    def _mask(self) -> Mask:
        return "none" if self.mask is None else "shared" if len(self.mask) == 1 else "own"

    @property
    def program(self) -> Program:
        """The kernel's program. Raises UnsupportedError where there is none."""
        return self.timed.program

    def computed(self, *, by_program: bool, threads: int) -> AnyArray:
        """The result, in the record's format of it. by_program: by the functional machine, else by the evaluator.

        Raises InputError where there is too little memory, before any is taken; UnsupportedError as `program`, and for
        factors of scores that are not above 0 by a program.
        """
        record = self.record
        what = f"the bits of attention with {record.heads} heads, {record.queries} queries and {record.keys} keys"
        if by_program:
            scores = SCORE_BYTES * record.heads * record.queries * record.keys
            check_memory(scores + bytes_of_arrays(self.program, self.device), f"{what}, by its program,", LESS)
            check_memory(program_need(self.program, self.device, threads), f"{what}, by its program,", LESS)
        else:
            check_memory(bytes_needed(record), what, LESS)
        fmt = format_of(record.format)
        stacks = [codes_of(np.ascontiguousarray(x), fmt).reshape(-1, *x.shape[-2:]) for x in self.operands]
        if by_program:
            inputs = _inputs(record, stacks, self.mask, self.descale)
            codes = functional.run(self.program, self.device, inputs, threads=threads, backend=CPU)
        else:
            stacks[1:] = [np.repeat(x, record.groups, 0) for x in stacks[1:]]
            codes = self.kernel.attend(
                *stacks, factor=record.factor, threads=threads, mask=self.mask, descale=self.descale
            )
        query, _, value = self.operands
        return array_of(codes, format_of(record.result_format)).reshape(*query.shape[:-1], value.shape[-1])


def call_of(
    query: AnyArray,
    key: AnyArray,
    value: AnyArray,
    *,
    device: str | Path | Mapping[str, Any] | Device,
    library: str,
    backend: str | None,
    is_causal: bool,
    scale: float | None,
    mask: AnyArray | None = None,
    descale: Sequence[AnyArray | None] = (),
    clock_mhz: float | None = None,
) -> AttentionCall:
    """The call of these operands. The arguments and errors are of `hwsim.attention`."""
    chip = load(device)
    chip = chip if clock_mhz is None else at_clock(chip, clock_mhz)
    if library not in LIBRARIES:
        allowed = f"allowed: {', '.join(LIBRARIES)}{nearest(str(library), LIBRARIES)}"
        raise InputError(f"attention: library = {library!r}; {allowed}")
    if backend is not None and library != PYTORCH:
        raise InputError(f"attention: library {library} has one kernel; leave backend = {backend!r} out")
    backend = None if backend is None else backend_named(backend)
    if backend is not None and backend not in BACKENDS:
        raise InputError(
            f"attention: backend = {backend!r}; allowed: {', '.join(BACKENDS)}{nearest(str(backend), BACKENDS)}"
        )
    operands = {name: given_array(name, x) for name, x in (("query", query), ("key", key), ("value", value))}
    format, groups = _format(operands), _groups(operands)
    q, k, v = operands.values()
    sizes = [x.shape for x in (q, k, v)]
    added = None if mask is None else _added(given_array("mask", mask), format, sizes, bool(is_causal))
    if library == PYTORCH:
        taken = _backend(chip, format, sizes, groups, backend, is_causal, has_mask=mask is not None)
    else:
        taken = _authors_kernel(chip, library, format, sizes, is_causal=is_causal, has_mask=mask is not None)
    factor = _factor(scale, q.shape[-1])
    heads = math.prod(q.shape[:-2])
    shapes = ((heads, *q.shape[-2:]), (heads, *k.shape[-2:]), (heads, *v.shape[-2:]))
    factors = _descale(descale, k.shape[:-2], format)
    kernel: AttentionKernel | MathKernel
    if taken == MATH:
        kernel = math_kernel_of(chip, format, shapes, is_causal=bool(is_causal))
    else:
        is_descaled = factors is not None
        kernel = kernel_of(
            chip, taken, format, shapes, groups=groups, is_causal=bool(is_causal), is_descaled=is_descaled
        )
    return AttentionCall(
        chip,
        (q, k, v),
        added,
        taken,
        kernel,
        shapes=shapes,
        groups=groups,
        factor=factor,
        descale=factors,
    )


def _descale(arrays: Sequence[AnyArray | None], heads: tuple[int, ...], format: str) -> Descale | None:
    """Factors of the heads of query, key and value; None without any. Raises InputError where they do not fit."""
    if all(x is None for x in arrays):
        return None
    if format != FORMAT_OF_8_BITS:
        raise InputError(f"attention: got descale factors with operands of {format}; allowed: with {FORMAT_OF_8_BITS}")
    factors = []
    for name, array in zip(("query", "key", "value"), arrays, strict=True):
        values = np.ones(heads, np.float32) if array is None else given_array(f"{name}_descale", array)
        if values.dtype != np.float32 or values.shape != heads:
            shown = f"{values.dtype} {values.shape}"
            raise InputError(
                f"attention: {name}_descale is {shown}; allowed: float32 {heads}, one for each key head; "
                "convert with numpy.float32"
            )
        factors.append(values.reshape(-1))
    return Descale(*factors)


def _added(mask: AnyArray, format: str, shapes: list[tuple[int, ...]], is_causal: bool) -> AnyArray:
    """A mask as codes (1 or heads of all sequences, queries, keys); what a mask of bool hides is -infinity. Raises
    InputError where it does not fit.
    """
    (*lead, queries, _), (*_, keys, _), _ = shapes
    fmt = format_of(format)
    whole = (*lead, queries, keys)
    dtype = array_dtype(fmt)
    if mask.dtype not in (np.dtype(bool), dtype):
        wrong = f"mask is {mask.dtype}; allowed: bool, whose False hides, or the operands' {dtype}, which is added"
    elif is_causal:
        wrong = "a mask and is_causal; take one of them, as in PyTorch"
    elif mask.ndim > len(whole) or any(n not in (1, of) for n, of in zip(mask.shape[::-1], whole[::-1], strict=False)):
        wrong = f"mask {mask.shape}; it is broadcast to {whole}"
    else:
        is_shared = all(n == 1 for n in mask.shape[:-2])
        wanted = (1, queries, keys) if is_shared else whole
        copies = 2 if mask.dtype == bool else 1  # numbers for what is hidden, and their codes
        check_memory(
            copies * dtype.itemsize * math.prod(wanted),
            f"a mask of {math.prod(wanted[:-2])} x {queries} x {keys} elements",
            "take a mask that all heads share, or attend to fewer heads or rows at a time",
        )
        values = np.where(mask, dtype.type(0), dtype.type(-np.inf)) if mask.dtype == bool else mask
        if is_shared:
            values = values.reshape(-1, *values.shape[-2:]) if values.ndim > 1 else values
        return codes_of(np.ascontiguousarray(np.broadcast_to(values, wanted)), fmt).reshape(-1, queries, keys)
    raise InputError(f"attention: got {wrong}")


def _inputs(
    record: AnyAttention, stacks: list[AnyArray], mask: AnyArray | None = None, descale: Descale | None = None
) -> dict[str, AnyArray]:
    """The inputs of the record's program. Raises UnsupportedError for factors of scores that are not above 0."""
    query, key, value = (x.reshape(-1, x.shape[-1]) for x in stacks)
    inputs = {"Q": query, "K": np.ascontiguousarray(key.T), "V": value}
    is_math = is_of_math(record)
    if is_math:  # each head's keys below those of the one before
        inputs["K"] = np.ascontiguousarray(stacks[1].swapaxes(1, 2)).reshape(-1, record.keys)
    if record.is_causal:
        seen = np.minimum(np.arange(1, record.queries + 1), record.keys)
        inputs["limit"] = np.tile(seen, 1 if is_math else record.heads).astype(np.uint32)[:, None]
        inputs["index"] = np.arange(record.keys, dtype=np.uint32)[None]
    if mask is not None:
        inputs["mask"] = mask.reshape(-1, record.keys)
    if descale is not None:
        factors = descale.scores * np.float32(record.factor)
        wrong = factors[~(factors > 0)]
        if len(wrong):
            raise UnsupportedError(
                f"attention: scale x query_descale x key_descale is {wrong[0]} for a head; programs take a factor of "
                "the scores above 0: leave functional out"
            )
        of_heads = zip(DESCALES, descale, strict=True)
        inputs |= {name: np.ascontiguousarray(x[:, None]).view(np.uint32) for name, x in of_heads}
    return inputs


def backend_named(text: str) -> str:
    """The backend that a text in any case names, also without its ending ("flash"); another text as it is."""
    name = str(text).upper()
    return next((known for known in BACKENDS if name in (known, known.removesuffix(BACKEND_ENDING))), text)


def _format(operands: Mapping[str, AnyArray]) -> str:
    """The operands' format. Raises InputError unless they have one that the kernels take."""
    dtypes = {name: x.dtype for name, x in operands.items()}
    for format in (*MATH_FORMATS, FORMAT_OF_8_BITS):
        if all(dtype == array_dtype(format_of(format)) for dtype in dtypes.values()):
            return format
    listed = ", ".join(f"{name} {dtype}" for name, dtype in dtypes.items())
    raise InputError(
        f"attention: got {listed}; allowed: float16, or ml_dtypes.bfloat16, for all three; float32 with "
        f"backend={MATH!r}; ml_dtypes.float8_e4m3fn with library='flash-attention-3'. "
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
    chip: Device,
    format: str,
    shapes: list[tuple[int, ...]],
    groups: int,
    wanted: str | None,
    is_causal: bool,
    *,
    has_mask: bool,
) -> str:
    """The backend that runs, or the one that was asked for. Raises UnsupportedError where it does not take the call, or
    its bits are not known.
    """
    (queries, width), (keys, _), (_, value_width) = (shape[-2:] for shape in shapes)
    kind = AttentionKind(format, DENSE, has_mask=has_mask, is_causal=is_causal, is_by_rows=True, is_grouped=groups > 1)
    options = candidates(kind, chip.name, chip.family, order=None if wanted is None else (wanted, MATH))
    taken = first_fit(options, width, value_width, queries, keys)
    call = f"heads of {width} and {value_width} elements, {queries} queries and {keys} keys"
    call += ", a mask" if has_mask else ""
    if taken == MATH and wanted in (None, MATH):
        if has_math_form(chip, format):
            return MATH
        raise UnsupportedError(
            f"attention: PyTorch runs its math form for {call} of {format} on {chip.name}, of the family "
            f"{chip.family}; its softmax is known of {', '.join(MATH_FORMATS)} on the families "
            f"{', '.join(pytorch().softmax.families)}. {IN_TORCH}"
        )
    if taken == MATH:
        more = f"{', causal' if is_causal else ''}{', shared heads of key and value' if groups > 1 else ''}"
        raise UnsupportedError(
            f"attention: {wanted} is not there for {call}{more} on {chip.name}; backend={MATH!r} is, or {IN_TORCH}"
        )
    if chip.family not in FAMILIES:
        raise UnsupportedError(
            f"attention: device {chip.name} is of the family {chip.family}; the kernels' orders are known of the "
            f"families {', '.join(FAMILIES)}. {IN_TORCH}"
        )
    widest = widest_head(chip, taken, format, has_mask=has_mask, has_one_query=queries == 1)
    if max(width, value_width) > widest:
        known = f"known of heads up to {widest} elements; got {call}" if widest else "not known"
        if queries == 1 and taken not in OF_ONE_QUERY:
            known = "not known with one query"
        if has_mask and taken not in WITH_MASKS:
            known = f"not known with a mask of one's own; known with one: {', '.join(WITH_MASKS)}"
        raise UnsupportedError(f"attention: the order of {taken} on {chip.name} is {known}. {IN_TORCH}")
    return taken


def _authors_kernel(
    chip: Device, library: str, format: str, shapes: list[tuple[int, ...]], *, is_causal: bool, has_mask: bool
) -> str:
    """The library, where it takes the call. Raises UnsupportedError where it does not, or its bits are not known."""
    (queries, width), (keys, _), (_, value_width) = (shape[-2:] for shape in shapes)
    widest = widest_head(chip, library, format)
    if not widest:
        raise UnsupportedError(
            f"attention: the order of {library} on {chip.name} is not known for operands of {format}. {IN_TORCH}"
        )
    if has_mask:
        raise UnsupportedError(
            f"attention: {library} takes no mask of one's own; leave it out, or take library={PYTORCH!r}"
        )
    call = f"heads of {width} and {value_width} elements, {queries} queries and {keys} keys"
    step = STEPS.get(format, STEP)
    if max(width, value_width) > widest or width % step or value_width % step:
        raise UnsupportedError(
            f"attention: {library} takes heads of up to {widest} elements of {format}, in steps of {step}; got {call}"
            f"{_next_width(width, value_width, step, widest)}"
        )
    reason = refused(library, width, value_width, format)
    if reason:
        raise UnsupportedError(f"attention: {reason}; got {call}")
    if is_causal and queries != keys:  # its mask is aligned with the last key
        raise UnsupportedError(
            f"attention: {library} is known with a causal mask of as many queries as keys; got {call}"
        )
    return library


def _next_width(width: int, value_width: int, step: int, widest: int) -> str:
    """The next widths that a library takes, in words; empty where there are none."""
    wider = tuple(-(-extent // step) * step for extent in (width, value_width))
    if max(wider) > widest:
        return ""
    named = str(wider[0]) if wider[0] == wider[1] else f"{wider[0]} and {wider[1]}"
    return f"; the next that it takes: {named}, padded with zeros"


def _factor(scale: float | None, width: int) -> float:
    if scale is None:
        return 1 / math.sqrt(width)
    if isinstance(scale, bool) or not isinstance(scale, Real) or not abs(scale) <= MOST_SCALE:
        raise InputError(
            f"attention: scale = {scale!r}; allowed: a number from {-MOST_SCALE:.2g} to {MOST_SCALE:.2g}, "
            "or None for 1 / sqrt(width)"
        )
    return float(scale)
