"""Executes one matrix instruction of a device on arrays: codes or typed arrays in, the chip's bits out.

It knows how arrays represent codes and selects the implementation of a dot unit: the backend where it
takes the unit with these formats, otherwise the integer reference. It knows no GEMM, no program and no time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hwsim.backend.cpu import CPU
from hwsim.devices.patterns import Choices, spell
from hwsim.devices.query import dot_spec, instruction
from hwsim.errors import InputError, UnsupportedError
from hwsim.formats import Exact, Format, array_dtype, array_of, code_dtype, codes_of, decode, format_of, round_to
from hwsim.host.arrays import given_array
from hwsim.host.threads import worker_count
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.sparsity import group_of, require_groups
from hwsim.numerics.units import DotSpec

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend
    from hwsim.devices.model import DeviceModel, InstructionModel

Codes = npt.NDArray[Any]
THREADED = 1 << 22  # products from which a second thread pays


def mma(
    device: DeviceModel,
    name: str,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    c: npt.ArrayLike,
    *,
    scale_a: npt.ArrayLike | None = None,
    scale_b: npt.ArrayLike | None = None,
    scale_d: int = 0,
    backend: Backend = CPU,
) -> npt.NDArray[Any]:
    """Execute one matrix instruction by a backend; see hwsim.devices.device.Device.mma."""
    model, spec = instruction(device, name), dot_spec(device, name)
    _forbid_pattern(name, model)
    codes_a, codes_b = (
        _operand(name, which, x, fmt, model, backend) for which, x, fmt in (("a", a, spec.a), ("b", b, spec.b))
    )
    codes_c, typed = _accumulator(name, c, spec)
    lead = _leading(
        name,
        {
            "a": (codes_a, (model.m, model.k)),
            "b": (codes_b, (model.k, model.n)),
            "c": (codes_c, (model.m, model.n)),
        },
    )
    scales = _scales(name, model, scale_a, scale_b)
    operands = DotOperands(codes_a, codes_b, codes_c, *scales, scale_d)
    if scales[0] is not None:
        blocks = model.k // (model.scale_block or 1)
        shapes = {"scale_a": (scales[0], (model.m, blocks)), "scale_b": (scales[1], (blocks, model.n))}
        _leading(name, shapes, lead)
    operands = _over(lead, operands)
    d = _compute(name, model, spec, operands, backend)
    return array_of(d, format_of(spec.d)) if typed else d


def dot(
    device: DeviceModel,
    name: str,
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    c: npt.ArrayLike,
    *,
    scale_a: npt.ArrayLike | None = None,
    scale_b: npt.ArrayLike | None = None,
    scale_d: int = 0,
    backend: Backend = CPU,
) -> npt.NDArray[Any]:
    """Compute one element of a matrix instruction by a backend; see hwsim.devices.device.Device.dot."""
    model, spec = instruction(device, name), dot_spec(device, name)
    if model.formats:
        _forbid_pattern(name, model)
    codes_a, codes_b = (
        _operand(name, which, x, fmt, model, backend) for which, x, fmt in (("a", a, spec.a), ("b", b, spec.b))
    )
    codes_c, typed = _accumulator(name, c, spec)
    if not codes_a.ndim or not codes_b.ndim or codes_a.shape[-1] != codes_b.shape[-1] or codes_a.shape[-1] > model.k:
        raise InputError(
            f"{name}: a and b (..., K') with one K' of at most {model.k} are needed; "
            f"got {codes_a.shape} and {codes_b.shape}"
        )
    lead = _broadcast(name, codes_a.shape[:-1], codes_b.shape[:-1], codes_c.shape)
    row, column = (_padded(np.broadcast_to(x, (*lead, x.shape[-1])), model.k) for x in (codes_a, codes_b))
    scales = _scales(name, model, scale_a, scale_b)
    if scales[0] is not None:
        blocks = model.k // (model.scale_block or 1)
        for which, scale in zip(("scale_a", "scale_b"), scales, strict=True):
            if not scale.ndim or scale.shape[-1] != blocks:
                raise InputError(
                    f"{name}: {which} (..., {blocks}) is needed, one per {model.scale_block} of k; got {scale.shape}"
                )
        _broadcast(name, lead, *(scale.shape[:-1] for scale in scales))
        scales = scales[0][..., None, :], scales[1][..., :, None]
    operands = DotOperands(row[..., None, :], column[..., :, None], codes_c[..., None, None], *scales, scale_d)
    d: npt.NDArray[Any] = _compute(name, model, spec, _over(lead, operands), backend)[..., 0, 0]
    return array_of(d, format_of(spec.d)) if typed else d


def scaled_accumulator(c: Codes, fmt: Format, scale_d: int, rule: str) -> tuple[Codes, npt.NDArray[np.bool_]]:
    """Codes of c * 2^-scale_d, and a mask of the elements that the format cannot represent (their codes are unchanged).

    rule "exact" leaves values below the normal range to the caller, who must scale them beyond the format's range;
    "RZ", "RNE" and "flush" round them to the format, so the mask is empty. Zeros, infinities and NaNs are not changed.
    """
    fraction = fmt.fraction_bits + fmt.ignored_bits
    biased = c >> c.dtype.type(fraction) & c.dtype.type((1 << fmt.exponent_bits) - 1)
    ordinary = biased != (1 << fmt.exponent_bits) - 1
    scaled = np.where(ordinary & (biased > scale_d), c - c.dtype.type(scale_d << fraction), c)
    is_zero = c & c.dtype.type((1 << (fmt.bits - 1)) - 1) == 0
    left = ordinary & (biased <= scale_d) & ~is_zero
    if rule == "exact":
        return scaled, left
    for place in zip(*np.nonzero(left), strict=True):
        scaled[place] = _scaled_code(int(c[place]), fmt, scale_d, rule)
    return scaled, np.zeros_like(left)


def _scaled_code(code: int, fmt: Format, scale_d: int, rule: str) -> int:
    value = decode(fmt, code)
    lower = Exact("finite", value.sign, value.significand, value.exponent - scale_d)
    if rule == "flush":
        return fmt.zero_code(value.sign)
    return round_to(fmt, lower, "RZ" if rule == "RZ" else "RNE")


def _over(lead: tuple[int, ...], operands: DotOperands) -> DotOperands:
    """The operands with these leading dimensions."""
    arrays = [None if x is None else np.broadcast_to(x, (*lead, *x.shape[-2:])) for x in operands[:-1]]
    return DotOperands(*arrays)._replace(scale_d=operands.scale_d)


def _compute(name: str, model: InstructionModel, spec: DotSpec, operands: DotOperands, backend: Backend) -> Codes:
    """Codes of the result; all arrays have the same leading dimensions."""
    c, scale_d, left = operands.c, operands.scale_d, None
    if isinstance(scale_d, bool) or not isinstance(scale_d, int | np.integer) or scale_d < 0:
        raise InputError(f"{name}: scale_d = {scale_d!r}; allowed: an integer of at least 0")
    if scale_d:
        if scale_d > (model.scale_input_d or 0):
            allowed = f"0 to {model.scale_input_d}" if model.scale_input_d else "0; it does not scale its accumulator"
            raise InputError(f"{name}: scale_d = {scale_d}; allowed: {allowed}")
        c, left = scaled_accumulator(c, format_of(spec.c), int(scale_d), model.scale_input_d_rule)
    if model.sparsity is not None:
        _require_sparse(name, operands.a, spec.a)
    operands = operands._replace(c=c, scale_d=0)
    if backend.takes(spec):
        threads = worker_count() if c.size * operands.a.shape[-1] >= THREADED else 1
        d = backend.gemm(spec, operands, threads=threads)
    else:
        d = _by_reference(spec, operands)
    if left is not None:
        for place in zip(*np.nonzero(left), strict=True):
            *lead, i, j = place
            row, column = operands.a[(*lead, i)].tolist(), operands.b[(*lead, slice(None), j)].tolist()
            d[place] = reference.dot(spec, DotOperands(row, column, int(c[place]), scale_d=int(scale_d)))
    return d


def _require_sparse(name: str, a: Codes, fmt: str) -> None:
    """Raise InputError for codes (..., k) of an A that the instruction cannot store."""
    number_format, (_, elements) = format_of(fmt), group_of(fmt)
    read = a >> a.dtype.type(number_format.ignored_bits) << a.dtype.type(number_format.ignored_bits)
    used = ~np.isin(read, [number_format.zero_code(sign) for sign in (0, 1)])
    try:
        require_groups(used.reshape(*a.shape[:-1], -1, elements), fmt, "set the others to zero")
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def _by_reference(spec: DotSpec, operands: DotOperands) -> Codes:
    d = np.empty(operands.c.shape, code_dtype(format_of(spec.d)))
    for at in np.ndindex(d.shape[:-2]):
        d[at] = reference.gemm(spec, DotOperands(*[None if x is None else x[at] for x in operands[:-1]]))
    return d


def _operand(name: str, which: str, array: npt.ArrayLike, fmt: str, model: InstructionModel, backend: Backend) -> Codes:
    codes = _codes(name, which, given_array(f"{name}: {which}", array), fmt)
    if model.operand_rounding is None:
        return codes
    if codes.dtype != np.uint32:
        raise UnsupportedError(f"{name}: operands of {fmt} are not 32-bit words, so they cannot be rounded to it")
    return backend.encode(codes.view(np.float32), format_of(fmt), model.operand_rounding)


def _accumulator(name: str, c: npt.ArrayLike, spec: DotSpec) -> tuple[Codes, bool]:
    """Codes of c, and whether c was a typed array."""
    array = given_array(f"{name}: c", c)
    return _codes(name, "c", array, spec.c), array.dtype != code_dtype(format_of(spec.c))


def _codes(name: str, which: str, array: npt.NDArray[Any], fmt: str) -> Codes:
    number_format = format_of(fmt)
    if array.dtype not in (array_dtype(number_format), code_dtype(number_format)):
        raise InputError(
            f"{name}: {which} is {fmt}; allowed: {array_dtype(number_format)}, or {code_dtype(number_format)} for codes"
            f"; got {array.dtype}"
        )
    try:
        return codes_of(array, number_format)
    except InputError as error:
        raise InputError(f"{name}: {which}: {error}") from None


def _scales(
    name: str, model: InstructionModel, scale_a: npt.ArrayLike | None, scale_b: npt.ArrayLike | None
) -> tuple[Any, Any]:
    """Codes of both scales; None of each where the instruction takes none."""
    fmt = model.scale_format
    if fmt is None:
        if scale_a is not None or scale_b is not None:
            raise InputError(f"{name} takes no scale_a and scale_b")
        return None, None
    if scale_a is None or scale_b is None:
        raise InputError(f"{name} needs scale_a and scale_b: {fmt}, one per {model.scale_block} of k")
    left, right = (given_array(f"{name}: {which}", x) for which, x in (("scale_a", scale_a), ("scale_b", scale_b)))
    return _codes(name, "scale_a", left, fmt), _codes(name, "scale_b", right, fmt)


def _forbid_pattern(name: str, model: InstructionModel) -> None:
    if model.n_last is not None or model.formats:
        alternatives = Choices(model.n, model.n_last, model.n_also, model.formats)
        raise InputError(
            f"{name} stands for several instructions ({alternatives}); name one, for example "
            f"{spell(name, model.n, model.a, model.b)}"
        )


def _leading(
    name: str, arrays: dict[str, tuple[Codes, tuple[int, int]]], lead: tuple[int, ...] | None = None
) -> tuple[int, ...]:
    """The common (broadcast) leading dimensions of arrays of these shapes."""
    for which, (array, shape) in arrays.items():
        if array.shape[-2:] != shape:
            raise InputError(f"{name}: {which} (..., {shape[0]}, {shape[1]}) is needed; got {array.shape}")
    shapes = [array.shape[:-2] for array, _ in arrays.values()]
    return _broadcast(name, *shapes, *([lead] if lead is not None else []))


def _broadcast(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise InputError(f"{name}: leading dimensions do not fit together; got {', '.join(map(str, shapes))}") from None


def _padded(codes: Codes, k: int) -> Codes:
    """Codes padded with zeros to length k (+0 has the code 0 in every operand format)."""
    if codes.shape[-1] == k:
        return codes
    full = np.zeros((*codes.shape[:-1], k), codes.dtype)
    full[..., : codes.shape[-1]] = codes
    return full
