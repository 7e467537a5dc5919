"""BF16x9, x6 and x3: FP32 from products of three BF16 pieces (Henry et al.; cuBLAS on Blackwell, arXiv 2605.16617).

The option `accumulation` selects how products are added: "fastf32" is the FastF32 main loop of tcgen05 (bands i + j
from the least significant, the accumulator scaled by 2^-8 between bands inside the unit); "bands" scales between bands
outside the unit, for units without scale-input-d; "termwise" adds whole products, each accumulated over all of K.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from hwsim.errors import InputError
from hwsim.gemm.option_types import Option
from hwsim.gemm.plan import Expression, Piece, Plan, Scaled, Stage, Sum, Term, TermValue, chain, sums
from hwsim.gemm.problem import Problem
from hwsim.schemes.scheme import AnyArray, Notice, Scheme, special_notices

STEP = 8  # each piece carries eight more bits
INSTRUCTION_K = 16  # of tcgen05's bf16 kind: one step of the main loop
BANDS = {
    "bf16x9": (((2, 2),), ((1, 2), (2, 1)), ((0, 2), (1, 1), (2, 0)), ((0, 1), (1, 0)), ((0, 0),)),
    "bf16x6": (((0, 2), (1, 1), (2, 0)), ((0, 1), (1, 0)), ((0, 0),)),
    "bf16x3": (((0, 1), (1, 0)), ((0, 0),)),
}


def plan(name: str, options: Mapping[str, Any], problem: Problem) -> Plan:
    """Split into BF16 pieces, rounded to nearest even and saturating; infinities enter as the largest fp32 and are
    restored afterwards.

    fastf32 and bands: p_i of (x - p_0 - ...) 2^(8 i); termwise: unscaled pieces. Raises InputError for an option that
    the accumulation does not use.
    """
    bands, accumulation = BANDS[name], options["accumulation"]
    unread, unset = ("promotion_interval", 1) if accumulation == "termwise" else ("k_group", None)
    if options[unread] != unset:
        raise InputError(f"scheme {name}: {unread} is not for accumulation={accumulation!r}; leave it out")
    count = 1 + max(max(pair) for band in bands for pair in band)
    scale = 0 if accumulation == "termwise" else STEP
    pieces = tuple([Piece("bf16", scale_exponent=scale if i else 0, overflow="saturate") for i in range(count)])
    group: int | None = INSTRUCTION_K * options["promotion_interval"]
    terms: tuple[Term, ...]
    combine: Expression = TermValue(0)
    if accumulation == "fastf32":
        terms = (Term(tuple(Stage(band, STEP if i else 0) for i, band in enumerate(bands))),)
    elif accumulation == "bands":
        terms = tuple([chain(*band) for band in bands])
        for i in range(1, len(bands)):
            combine = Sum(Scaled(combine, -STEP), TermValue(i))
    else:
        group = options["k_group"]
        terms = tuple([chain(pair) for band in bands for pair in band])
        combine = sums(*(TermValue(i) for i in range(len(terms))))
    return Plan(
        name,
        pieces,
        pieces,
        terms,
        combine,
        join="group" if accumulation == "bands" else "end",
        k_group=group,
        input_format=problem.input_format,
        clamp=True,
        specials="fma_chain",
        split_in="pass" if accumulation == "termwise" else "kernel",
        calls=accumulation == "termwise",
        order="calls" if accumulation == "termwise" else "ours",
    )


def inspect(a: AnyArray, b: AnyArray, options: Mapping[str, Any]) -> list[Notice]:
    """Notices: NaNs and infinities; the split loses nothing else."""
    return special_notices(a, b)


OPTIONS = (
    Option(
        "accumulation",
        str,
        None,
        "fastf32: bands scaled inside the unit (tcgen05); bands: outside it; termwise: whole products added outside",
        choices=("fastf32", "termwise", "bands"),
        default_text="fastf32 where the unit scales its accumulator, else termwise",
    ),
    Option("promotion_interval", int, 1, "fastf32, bands: the promotion interval, in steps of 16 of K", least=1),
    Option(
        "k_group",
        int,
        None,
        "termwise: promotion interval: length of K summed inside the unit before the sum is added outside",
        least=1,
        default_text="all of K",
    ),
    Option("hybrid", bool, False, "use native fp32 instead where its simulated time is shorter"),
)

SCHEMES = tuple(
    Scheme(
        name,
        f"FP32 from {sum(map(len, BANDS[name]))} BF16 products",
        "BF16x9, arXiv 2605.16617; Henry et al., Leveraging the bfloat16 datatype; NVIDIA's FastF32 main loop",
        OPTIONS,
        partial(plan, name),
        inspect,
        alternatives="accumulation",
    )
    for name in BANDS
)
