"""The interface of a GEMM scheme: typed options, a plan made from them, and an inspection of the operands for warnings.

A scheme knows nothing of devices, engines or cycles; the plan that it returns is all that a dataflow reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.errors import InputError
from hwsim.gemm.option_types import Option, checked
from hwsim.gemm.plan import Mixed, Piece, Plan, Term, TermValue, chain, sums
from hwsim.gemm.problem import Problem

AnyArray = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Notice:
    """A warning about the operands: a code for scripts, a count, and a message."""

    code: str
    count: int
    message: str


def special_notices(a: AnyArray, b: AnyArray) -> list[Notice]:
    """Notices with the counts of NaNs and infinities in the operands."""
    notices = []
    for code, test, what in (("nan_input", np.isnan, "NaN"), ("infinite_input", np.isinf, "infinite")):
        count = sum(int(test(x).sum()) for x in (a, b))
        if count:
            notices.append(
                Notice(code, count, f"{count} {what} elements in A and B: the device's rules for them apply")
            )
    return notices


def inspect_special(a: AnyArray, b: AnyArray, options: Mapping[str, Any]) -> list[Notice]:
    """The inspection of a scheme that has none of its own: NaNs and infinities."""
    return special_notices(a, b)


@dataclass(frozen=True, slots=True)
class Scheme:
    """A GEMM scheme. plan(options, problem) and inspect(a, b, options) receive complete, validated options.

    inspect: warnings about the operands; by default of NaNs and infinities alone. input_formats: operand formats that
    it accepts unchanged; others are rounded to the first of them. alternatives: name of an option for which None means:
    the first of its choices whose plan the device supports. survey: for options that depend on the data; survey(a, b,
    options) returns the complete options, and is called before `plan` where operands are given and an option has the
    value that survey_if names. assumes: assumes(options) says what the plan of sizes alone assumes of the data; empty:
    nothing. quantizes: names by which A and B are quantised (hwsim.quantize) before the product,
    where they have no scales yet. values: of options that the object carries; `scheme(name=value)` is such an object.
    origin: the scheme without them.
    """

    name: str
    title: str
    source: str
    options: tuple[Option, ...]
    plan: Callable[[Mapping[str, Any], Problem], Plan | Mixed]
    inspect: Callable[[AnyArray, AnyArray, Mapping[str, Any]], list[Notice]] = inspect_special
    input_formats: tuple[str, ...] = ("fp32",)
    alternatives: str | None = None
    survey: Callable[[AnyArray, AnyArray, Mapping[str, Any]], dict[str, Any]] | None = None
    quantizes: tuple[str, str] | None = None
    survey_if: tuple[str, Any] = ("", None)
    assumes: Callable[[Mapping[str, Any]], str] | None = None
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)
    origin: Scheme | None = field(default=None, repr=False, compare=False)

    def __call__(self, **options: object) -> Scheme:
        """The scheme as an object that carries these of its options: `hwsim.run(scheme=MINE(products=4))`.

        Raises InputError for an option that it has not, or a value that is not allowed.
        """
        checked(self.options, options, f"scheme {self.name}")
        return replace(self, values={**self.values, **options}, origin=self.bare)

    @property
    def bare(self) -> Scheme:
        """The scheme without the options that this object carries."""
        return self.origin or self

    @property
    def label(self) -> str:
        """The name, with the options that this object carries: `bf16-pair products=4`."""
        return " ".join([self.name, *(f"{name}={value}" for name, value in self.values.items())])

    @property
    def takes_native_formats(self) -> bool:
        """Whether the scheme's option `format` may be any native format, and defaults to the device's choice."""
        return any(option.name == "format" and option.default is None for option in self.options)

    @property
    def has_choice_of_format(self) -> bool:
        """Whether the scheme has an option `format`."""
        return any(option.name == "format" for option in self.options)

    def takes_operands_of(self, format: str | None) -> bool:
        """Whether `format=` says the format of the operands, because the scheme itself has no choice of one: "fp64" of
        a scheme that makes FP64 from integers.
        """
        return not self.has_choice_of_format and self.quantizes is None and format in self.input_formats

    def is_of_data(self, options: Mapping[str, Any]) -> bool:
        """Whether the plan depends on the operands, with these of its options."""
        name, value = self.survey_if
        return self.survey is not None and {**self.values, **options}.get(name) == value

    def complete(self, values: Mapping[str, object]) -> dict[str, Any]:
        """Validated options with defaults. Raises InputError with a list of the options for an unknown one."""
        return checked(self.options, values, f"scheme {self.name}")


K_GROUP = Option(
    "k_group",
    int,
    None,
    "promotion interval: length of K summed inside the unit before the sum is added outside",
    least=1,
    default_text="all of K",
)
K_GROUP_OR_TILE = replace(K_GROUP, default_text="all of K; on the 910A the tile decides")
INTERLEAVE = Option(
    "interleave",
    int,
    "instruction",
    "products of one accumulator alternate per instruction, after so many elements of K, or (k) each runs over all K",
    least=1,
    words=("instruction", "k"),
)
ACCUMULATION = Option(
    "accumulation",
    str,
    "chained",
    "chained: in the unit, one kernel; termwise: each product a GEMM of its own, added to C outside (library calls)",
    choices=("chained", "termwise"),
)


def is_termwise(name: str, options: Mapping[str, Any]) -> bool:
    """Whether the option `accumulation` asks for separate products. Raises InputError where `interleave` is given with
    it.
    """
    if options["accumulation"] == "chained":
        return False
    if options["interleave"] != INTERLEAVE.default:
        raise InputError(f"scheme {name}: interleave is not for accumulation='termwise'; leave it out")
    return True


PiecePair = tuple[int, int]


def terms_of(
    name: str, options: Mapping[str, Any], products: Sequence[PiecePair], calls: Sequence[PiecePair] | None = None
) -> tuple[Term, ...]:
    """The terms for a list of products (piece of A, piece of B): one chain, or one term per product, in the order of
    `calls`.

    calls: by default the order of `products`. Raises InputError as `is_termwise`.
    """
    if is_termwise(name, options):
        return tuple([chain(pair) for pair in calls or products])
    return (chain(*products, interleave=options["interleave"]),)


def plan_of_sums(
    name: str, pieces: tuple[Piece, ...], terms: tuple[Term, ...], options: Mapping[str, Any], problem: Problem
) -> Plan:
    """A plan that adds up its terms, from the same pieces of A and B; several terms are library calls that add to C."""
    return Plan(
        name,
        pieces,
        pieces,
        terms,
        sums(*map(TermValue, range(len(terms)))),
        k_group=options["k_group"],
        input_format=problem.input_format,
        calls=len(terms) > 1,
        order="calls" if len(terms) > 1 else "ours",
    )
