"""Random input matrices for studies, reproducible by seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.backend.cpu import CPU
from hwsim.errors import InputError, nearest
from hwsim.formats import array_dtype, format_of
from hwsim.operands.code_draws import draw_pair
from hwsim.operands.matrix_product import MatrixProduct

AnyArray = NDArray[Any]
Float32 = NDArray[np.float32]
#: Draws values: a generator, a shape, a dtype, the axis along which rows of A and columns of B lie, and parameters.
ValueDraw = Callable[[np.random.Generator, tuple[int, ...], Any, int, tuple[int, ...]], AnyArray]
NORMAL = "normal"
BETWEEN = ":"  # between a name and its parameters


def _normal(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, axis: int, parameters: tuple[int, ...]
) -> AnyArray:
    return rng.standard_normal(shape, dtype)


def _uniform(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, axis: int, parameters: tuple[int, ...]
) -> AnyArray:
    return rng.uniform(-1.0, 1.0, shape).astype(dtype)


def _positive(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, axis: int, parameters: tuple[int, ...]
) -> AnyArray:
    return rng.uniform(0.0, 1.0, shape).astype(dtype)


def _log_uniform(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, axis: int, parameters: tuple[int, ...]
) -> AnyArray:
    low, high = parameters
    magnitude = np.exp2(rng.uniform(low, high, shape))
    return np.where(rng.integers(0, 2, shape, np.uint8) == 1, -magnitude, magnitude).astype(dtype)


def _scaled_rows(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, axis: int, parameters: tuple[int, ...]
) -> AnyArray:
    (most,) = parameters
    lines = list(shape)
    lines[axis] = 1
    exponents = rng.integers(-most, most, lines, endpoint=True)
    return np.asarray(np.ldexp(rng.standard_normal(shape, dtype), exponents).astype(dtype))


@dataclass(frozen=True, slots=True)
class Distribution:
    """What random elements are. words: with a place for each parameter. parameters: their names, defaults, and bounds.

    of_values: draws fp32 or fp64 values, which are rounded to the operands' format; None: bit fields of that format are
    drawn, as of the distribution of this name in `hwsim.operands.code_draws`.
    """

    words: str
    of_values: ValueDraw | None = None
    parameters: tuple[str, ...] = ()
    defaults: tuple[int, ...] = ()


#: Every distribution of random matrices. The ones without of_values are the ones of `hwsim golden record`.
DISTRIBUTIONS: Mapping[str, Distribution] = MappingProxyType(
    {
        NORMAL: Distribution("N(0, 1)", _normal),
        "uniform": Distribution("uniform in [-1, 1)", _uniform),
        "positive": Distribution("uniform in [0, 1)", _positive),
        "log-uniform": Distribution("numbers +-2^x, x uniform from {} to {}", _log_uniform, ("LOW", "HIGH"), (-10, 10)),
        "scaled-rows": Distribution(
            "N(0, 1), each row of A and column of B times a power of two from 2^-{0} to 2^{0}",
            _scaled_rows,
            ("E",),
            (10,),
        ),
        "anybits": Distribution("bit patterns, infinities and NaNs among them"),
        "finite": Distribution("finite bit patterns"),
        "narrow": Distribution("numbers with exponents within 3 of 0"),
        "spread": Distribution("numbers with exponents within 15 of 0, half of them powers of two"),
        "cancel": Distribution("pairs of products that cancel, but for a last place"),
        "subnormal": Distribution("numbers, A subnormal, B as small or for subnormal results"),
        "huge": Distribution("numbers of the largest binades"),
    }
)
#: Formats whose random elements are uniform over all values, as their schemes cut the bits of an integer into pieces.
#: Elements of other integer formats are fp32 numbers of the distribution, rounded.
UNIFORM = ("int16",)
OF_UNIFORM = "uniform over all values"
#: Formats whose values are drawn; their exponents bound the parameters.
MOST_EXPONENTS: Mapping[str, int] = MappingProxyType({"fp32": 126, "fp64": 1022})


@dataclass(frozen=True, slots=True)
class ChosenDistribution:
    """A distribution with its parameters."""

    name: str
    parameters: tuple[int, ...]

    @property
    def is_of_codes(self) -> bool:
        """Whether bit fields of the operands' format are drawn, not values."""
        return DISTRIBUTIONS[self.name].of_values is None

    @property
    def words(self) -> str:
        """What random elements are, in words."""
        return DISTRIBUTIONS[self.name].words.format(*self.parameters)

    def is_uniform_in(self, format: str) -> bool:
        """Whether elements to be used as a format are uniform over all its values: those of UNIFORM, unless bit fields
        are drawn.
        """
        return format in UNIFORM and not self.is_of_codes


def distribution_of(text: str) -> ChosenDistribution:
    """The distribution that a text names: a name, or a name and its parameters, as "log-uniform:-20:20".

    Raises InputError for another text, with what is allowed.
    """
    try:
        return _chosen(text)
    except ValueError as error:
        raise InputError(f"distribution {text!r}; allowed: {error}") from None


def checked_distribution(value: Any) -> str:
    """The text of a distribution. Raises ValueError for anything else, with what is allowed."""
    if not isinstance(value, str):
        raise ValueError("a name")
    _chosen(value)
    return value


def _chosen(text: str) -> ChosenDistribution:
    """The distribution that a text names. Raises ValueError with what is allowed."""
    name, *numbers = text.split(BETWEEN)
    known = DISTRIBUTIONS.get(name)
    if known is None:
        raise ValueError(f"{ALLOWED}{nearest(name, list(DISTRIBUTIONS))}")
    if not numbers:
        return ChosenDistribution(name, known.defaults)
    try:
        parameters = tuple(int(number) for number in numbers)
    except ValueError:
        parameters = ()
    is_right = len(parameters) == len(known.parameters) > 0 and max(map(abs, parameters)) <= MOST_EXPONENTS["fp64"]
    if len(parameters) == 1:
        is_right = is_right and parameters[0] > 0
    if not is_right or list(parameters) != sorted(set(parameters)):
        raise ValueError(_form(name, known))
    return ChosenDistribution(name, parameters)


def _form(name: str, known: Distribution) -> str:
    """How a distribution is written, with what its parameters may be."""
    most = MOST_EXPONENTS["fp64"]
    if not known.parameters:
        return f"{name}, without parameters"
    limits = f"integers from -{most} to {most}, LOW below HIGH" if len(known.parameters) > 1 else f"from 1 to {most}"
    return f"{BETWEEN.join((name, *known.parameters))}, {limits}"


ALLOWED = ", ".join(BETWEEN.join((name, *known.parameters)) for name, known in DISTRIBUTIONS.items())
#: Each distribution with its words, for help texts.
HELP = ", ".join(
    f"{BETWEEN.join((name, *known.parameters))} ({known.words.format(*(known.parameters or ()))}"
    f"{'; default ' + BETWEEN.join(map(str, known.defaults)) if known.defaults else ''})"
    for name, known in DISTRIBUTIONS.items()
)


def words_of_draw(distribution: str, format: str) -> str:
    """What random elements to be used as this format are, in words."""
    chosen = distribution_of(distribution)
    return f"{OF_UNIFORM} of {format}" if chosen.is_uniform_in(format) else chosen.words


def normal(m: int, n: int, k: int, seed: int) -> tuple[Float32, Float32]:
    """A[m, k] and B[k, n] from N(0, 1), fp32."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)


def drawn(
    m: int,
    n: int,
    k: int,
    seed: int,
    format: str,
    distribution: str = NORMAL,
    lead: tuple[int, ...] = (),
    code_formats: tuple[str, str] | None = None,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """A[..., m, k] and B[..., k, n] to be used as `format`, lead being their leading dimensions, of a distribution of
    DISTRIBUTIONS: fp64 with all bits; those of UNIFORM as integers, over all values; any other format in fp32.

    code_formats: of A's and B's bit fields, where these are drawn; the arrays hold their values (default: `format`).
    Raises InputError for parameters that the arrays' format does not hold, and for values of a format of UNIFORM that
    are of another distribution.
    """
    chosen = distribution_of(distribution)
    dtype = np.float64 if format == "fp64" else np.float32
    if chosen.is_of_codes:
        return _values_of_codes((m, n, k), seed, code_formats or (format, format), chosen.name, lead, format)
    rng, shapes = np.random.default_rng(seed), ((*lead, m, k), (*lead, k, n))
    if chosen.is_uniform_in(format):
        if chosen.name != NORMAL:
            raise InputError(
                f"distribution {distribution!r}: random operands of {format} are {OF_UNIFORM}; leave it out, or give A "
                "and B"
            )
        whole = array_dtype(format_of(format))
        low, high = np.iinfo(whole).min, np.iinfo(whole).max
        return tuple(rng.integers(low, high, shape, whole, endpoint=True) for shape in shapes)  # type: ignore[return-value]
    most = MOST_EXPONENTS["fp64" if dtype == np.float64 else "fp32"]
    if any(abs(parameter) > most for parameter in chosen.parameters):
        raise InputError(
            f"distribution {distribution!r}: operands are drawn in fp32; allowed: exponents of at most {most}, or "
            f"{MOST_EXPONENTS['fp64']} with input_format=fp64"
        )
    of_values = DISTRIBUTIONS[chosen.name].of_values
    assert of_values is not None
    left, right = (
        of_values(rng, shape, dtype, axis, chosen.parameters) for shape, axis in zip(shapes, (-1, -2), strict=True)
    )
    return left, right


def _values_of_codes(
    sizes: tuple[int, int, int],
    seed: int,
    formats: tuple[str, str],
    name: str,
    lead: tuple[int, ...],
    format: str,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """A and B of bit fields of two formats, as values: in the dtype of a format of UNIFORM, else in fp64 or fp32."""
    m, n, k = sizes
    total = "int32" if format_of(formats[0]).is_integer else "fp64" if "fp64" in formats else "fp32"
    product = MatrixProduct("A B", m=m, n=n, k=k, a=formats[0], b=formats[1], c=total, d=total)
    codes = draw_pair(name, np.random.default_rng(seed), product, math.prod(lead))
    shapes = (*lead, m, k), (*lead, n, k)
    dtype = array_dtype(format_of(format)) if format in UNIFORM else np.float64 if format == "fp64" else np.float32
    a, b = (
        side.reshape(shape).view(np.float32)
        if form == "fp32" and dtype == np.float32
        else CPU.decode(side.reshape(shape), format_of(form), np.dtype(np.float64)).astype(dtype)
        for side, shape, form in zip(codes, shapes, formats, strict=True)
    )
    return a, np.ascontiguousarray(np.swapaxes(b, -1, -2))


def offset_uniform(m: int, n: int, k: int, seed: int, exponent: int, *, symmetric: bool) -> tuple[Float32, Float32]:
    """A and B uniform in [-2^exponent, 2^exponent], or in [0, 2^exponent], fp32 (SGEMM-cube, section 4)."""
    rng = np.random.default_rng(seed)
    low = -1.0 if symmetric else 0.0
    scale = np.float32(2.0**exponent)
    return tuple(rng.uniform(low, 1.0, shape).astype(np.float32) * scale for shape in ((m, k), (k, n)))  # type: ignore[return-value]


def spread_normal(m: int, n: int, k: int, seed: int, span: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A and B from N(0, 1), each element times a random power of two from 2^-span to 2^span, fp64."""
    rng = np.random.default_rng(seed)
    return tuple(  # type: ignore[return-value]
        np.ldexp(rng.standard_normal(shape), rng.integers(-span, span, shape, endpoint=True))
        for shape in ((m, k), (k, n))
    )


def conditioned(size: int, seed: int, condition: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A and B, size x size, whose dot products mostly have about this condition number |x| |y| / |x.y| (BF16x9, 5).

    A is the orthogonal matrix of `conditioned_factors` and B = A^T C, so that A B = C, with rows of A and columns of B
    of length about one.
    """
    a, c = conditioned_factors(size, seed, condition)
    return a, a.T @ c


def conditioned_factors(size: int, seed: int, condition: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A, a random orthogonal matrix, and C = A B of `conditioned`.

    C has elements of 0.9 to 1.1 over the condition number, of either sign, and 1 at a random place of each column.
    """
    rng = np.random.default_rng(seed)
    c = rng.uniform(0.9, 1.1, (size, size)) / condition * rng.choice((-1.0, 1.0), (size, size))
    c[rng.integers(0, size, size), np.arange(size)] = 1.0
    return np.linalg.qr(rng.standard_normal((size, size)))[0], c


def dot_conditions(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """The condition number |x| |y| / |x.y| of each dot product of A B, (..., m, n), in fp64; infinite where x.y = 0."""
    left, right = (np.asarray(x, np.float64) for x in (a, b))
    lengths = np.linalg.norm(left, axis=-1)[..., :, None] * np.linalg.norm(right, axis=-2)[..., None, :]
    with np.errstate(divide="ignore"):
        return np.asarray(lengths / np.abs(left @ right))
