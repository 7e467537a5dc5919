"""What the straight-line schemes stand on: operands from bit fields, conversions by integers, single instructions.

Nothing here comes from hwsim but `Device.dot`, the names and the K of its instructions.
"""

from __future__ import annotations

import functools

import numpy as np

from hwsim.devices import find, load
from hwsim.devices.device import Device

F32 = np.float32
U32 = np.uint32
U64 = np.uint64
SHAPES = ((1, 1, 1), (3, 5, 67), (17, 33, 130))  # m, n, k
ASCEND = ("ascend910a",)
FIELDS = {"fp32": (8, 23, np.uint32, np.float32), "fp64": (11, 52, np.uint64, np.float64)}
#: NaN of the fp32 lanes: PTX ISA says 0x7fffffff for NVIDIA; elsewhere IEEE's default.
NAN = {"mi210": 0x7FC00000, "ascend910a": 0x7FC00000, "ascend910b3": 0x7FC00000}
#: Relative spread of the exponents, and which elements are put in: fractions of subnormals, -0, specials.
KINDS = {
    "near": (3, 0.0, 0.03, 0.0),
    "wide": (14, 0.02, 0.03, 0.0),
    "extreme": (126, 0.1, 0.05, 0.0),
    "tiny": (1, 0.7, 0.1, 0.0),
    "special": (6, 0.05, 0.05, 0.004),
}


def operand(kind: str, shape: tuple[int, int], seed: int, fmt: str = "fp32") -> np.ndarray:
    """Values from signs, exponents and extreme significands."""
    rng = np.random.default_rng([seed, *shape])
    exponents, fraction_bits, word, dtype = FIELDS[fmt]
    spread, subnormal, zero, special = KINDS[kind]
    bias = (1 << (exponents - 1)) - 1
    spread = spread * (bias // 127) if kind == "extreme" else spread
    exponent = rng.integers(bias - spread, bias + spread + 1, shape).astype(word)
    fraction = rng.integers(0, 1 << fraction_bits, shape).astype(word)
    ends = np.array([0, 1, (1 << fraction_bits) - 1, 1 << (fraction_bits - 12)], word)
    fraction = np.where(rng.random(shape) < 0.3, rng.choice(ends, shape), fraction)
    exponent[rng.random(shape) < subnormal] = 0
    code = exponent << word(fraction_bits) | fraction
    code[rng.random(shape) < zero] = 0
    if special:
        top = word((1 << exponents) - 1) << word(fraction_bits)
        code[rng.random(shape) < special] = top
        code[rng.random(shape) < special] = top | word(5)
        code.flat[rng.integers(code.size)] = top
    code |= rng.integers(0, 2, shape).astype(word) << word(exponents + fraction_bits)
    return code.view(dtype)


def pair(kind: str, shape: tuple[int, int, int], seed: int = 0, fmt: str = "fp32") -> tuple[np.ndarray, np.ndarray]:
    """A (m, k) and B (k, n). kind "cancel": neighbours along K cancel but for their last digits."""
    m, n, k = shape
    if kind != "cancel":
        return operand(kind, (m, k), seed, fmt), operand(kind, (k, n), seed + 1, fmt)
    a, b = operand("near", (m, k), seed, fmt), operand("near", (k, n), seed + 1, fmt)
    a[:, 1::2], b[1::2] = a[:, : k - k % 2 : 2], -b[: k - k % 2 : 2]
    if k % 2:
        a[:, -1] = 0
    rng, (_, _, word, dtype) = np.random.default_rng(seed), FIELDS[fmt]
    low = word(0xFF if fmt == "fp32" else 0xFFFFF)
    return tuple((x.view(word) ^ (rng.integers(0, 1 << 30, x.shape).astype(word) & low)).view(dtype) for x in (a, b))


# Conversions. Values come back in the input's type, so that remainders can be taken.


def to_fp16(x: np.ndarray) -> np.ndarray:
    """Nearest even, infinity beyond the range."""
    return x.astype(np.float16).astype(x.dtype)


def to_fp16_cut(x: np.ndarray, beyond: str) -> np.ndarray:
    """Toward zero, subnormals kept. beyond: "largest": also for infinities; "ieee": infinities stay."""
    largest = F32(65504)
    magnitude = np.minimum(np.abs(x), largest)
    exponent = np.maximum(np.frexp(magnitude)[1] - 1, -14)
    cut = np.ldexp(np.trunc(np.ldexp(magnitude, 10 - exponent)), exponent - 10).astype(x.dtype)
    cut = np.copysign(np.where(np.isnan(x), F32(np.nan), cut), x)
    return np.where(np.isinf(x), x, cut) if beyond == "ieee" else cut


def _by_code(x: np.ndarray, dropped: int, ties: str) -> np.ndarray:
    """fp32 with `dropped` low bits less; ties "even" or "away"; beyond the range: infinity."""
    code = x.view(U32)
    half = U32(1 << (dropped - 1))
    if ties == "even":
        half = half - U32(1) + (code >> U32(dropped) & U32(1))
    kept = (code + half) >> U32(dropped) << U32(dropped)
    return np.where(np.isfinite(x), kept.view(F32), np.where(np.isnan(x), F32(np.nan), x))


def to_bf16(x: np.ndarray) -> np.ndarray:
    """Nearest even, infinity beyond the range."""
    return _by_code(x, 16, "even")


def to_bf16_held(x: np.ndarray) -> np.ndarray:
    """Nearest even, the largest finite value beyond the range."""
    largest = np.array(0x7F7F0000, U32).view(F32)
    return np.where(np.isnan(x), x, np.clip(to_bf16(x), -largest, largest))


def to_tf32(x: np.ndarray, ties: str = "even") -> np.ndarray:
    """Nearest, ties to even or away from zero; infinity beyond the range."""
    return _by_code(x, 13, ties)


def codes(x: np.ndarray, fmt: str) -> np.ndarray:
    """Codes of values that the format holds."""
    if fmt == "fp16":
        return x.astype(np.float16).view(np.uint16)
    if fmt == "bf16":
        return (x.view(U32) >> U32(16)).astype(np.uint16) | np.where(np.isnan(x), 0x40, 0).astype(np.uint16)
    if fmt in ("tf32", "fp32"):
        return np.ascontiguousarray(x).view(U32)
    if fmt == "fp64":
        return np.ascontiguousarray(x).view(U64)
    if fmt == "int4":
        return x.astype(np.int8).view(np.uint8) & 15
    return x.astype(np.int8).view(np.uint8) if fmt == "int8" else x.astype(np.uint8)


# The unit.


@functools.cache
def chip(name: str) -> Device:
    """A device, loaded once."""
    return load(name)


class Unit:
    """One matrix instruction of a device. d: dtype of its results."""

    def __init__(self, device: str, fmt: str, name: str | None = None) -> None:
        self.device, self.fmt = chip(device), fmt
        self.name = name or self.device.native[fmt]
        model = find(self.device, self.name)
        assert model is not None
        self.step = model.k
        self.d = {"fp64": np.float64, "int32": np.int32}.get(model.d, np.float32)

    def product(self, a: np.ndarray, b: np.ndarray, c: np.ndarray, scale_d: int = 0) -> np.ndarray:
        """c + a b for at most one instruction's K; a (m, k), b (k, n) codes, c values."""
        word = U64 if c.dtype.itemsize == 8 else U32
        d = self.device.dot(self.name, a[:, None, :], b.T[None], c.view(word), scale_d=scale_d)
        return d.view(c.dtype)

    def zeros(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """An empty accumulator."""
        return np.zeros((a.shape[0], b.shape[1]), self.d)

    def chain(self, *products: tuple[np.ndarray, np.ndarray], interleave: str | int = "instruction") -> np.ndarray:
        """All products in one accumulator from zero: alternating instruction by instruction, after so much of K, or
        ("k") one by one.
        """
        acc = self.zeros(*products[0])
        k = products[0][0].shape[1]
        length = {"instruction": self.step, "k": max(k, 1)}.get(interleave, interleave)
        order = [
            (p, at)
            for start in range(0, k, length)
            for p in products
            for at in range(start, min(start + length, k), self.step)
        ]
        for (a, b), at in order:
            acc = self.product(a[:, at : at + self.step], b[at : at + self.step], acc)
        return acc


class Outside:
    """fp32 (or fp64) arithmetic beside the unit: one operation at a time, nearest even, the device's NaN."""

    def __init__(self, device: str, dtype: type = np.float32) -> None:
        self.dtype, self.nan = dtype, NAN.get(device, 0x7FFFFFFF)
        self.saturates = device in ASCEND

    def settle(self, x: np.ndarray) -> np.ndarray:
        """The device's infinities and NaNs in place of IEEE's."""
        if self.saturates:
            largest = np.finfo(x.dtype).max
            return np.where(np.isnan(x), x.dtype.type(0), np.clip(x, -largest, largest))
        if x.dtype == np.float64:
            nan = np.array(0x7FF8 << 48, U64).view(np.float64)
        else:
            nan = np.array(self.nan, U32).view(F32)
        return np.where(np.isnan(x), nan, x)

    def add(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """x + y."""
        return self.settle(self.settle(x) + self.settle(y))

    def times(self, x: np.ndarray, exponent: int) -> np.ndarray:
        """x 2^exponent."""
        return self.settle(self.settle(x) * x.dtype.type(2.0**exponent))

    def runs(self, unit: Unit, products: list, group: int | None, interleave="instruction") -> np.ndarray:
        """Chains of `group` of K each from zero, added outside in order of K to a sum that starts at +0."""
        k = products[0][0].shape[1]
        if group is None:
            return unit.chain(*products, interleave=interleave)
        total = unit.zeros(*products[0])
        for at in range(0, k, group):
            part = [(a[:, at : at + group], b[at : at + group]) for a, b in products]
            value = unit.chain(*part, interleave=interleave)
            total = total + value if value.dtype.kind == "i" else self.add(total, value)
        return total

    def calls(self, unit: Unit, products: list, group: int | None) -> np.ndarray:
        """Each product from zero, the next ones added to it outside."""
        total, *others = (self.runs(unit, [product], group) for product in products)
        for value in others:
            total = self.add(total, value)
        return total


def same(got: np.ndarray, want: np.ndarray) -> None:
    """Bit for bit, NaNs included."""
    assert got.dtype == want.dtype and got.shape == want.shape, (got.dtype, want.dtype, got.shape, want.shape)
    word = f"u{got.dtype.itemsize}"
    bad = np.argwhere(np.ascontiguousarray(got).view(word) != np.ascontiguousarray(want).view(word))
    assert not len(bad), f"{len(bad)} of {got.size} differ; {bad[0]}: {got[tuple(bad[0])]!r}, {want[tuple(bad[0])]!r}"
