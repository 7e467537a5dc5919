"""Names what a record asks for, so that each part that computes it can say what it does not carry.

A part answers `refuses(gemm)` with such names, or with "" where it carries the record. The module knows records; it
knows no part, and not what any of them carries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from hwsim.gemm.plan import Mixed, Plan
from hwsim.gemm.problem import Problem, ScaleKind
from hwsim.gemm.record import Gemm
from hwsim.gemm.schedule import Epilogue, Schedule

Refusal = Callable[[Gemm], str]
SEPARATOR = ", "  # of names, none of which has it
SUMS: frozenset[ScaleKind] = frozenset({"tensor", "row"})  # scales that multiply finished sums
ALONG_K: frozenset[ScaleKind] = frozenset({"block", "vector"})  # scales that differ along K


def named(asked: Mapping[str, object]) -> str:
    """The names whose value is true, as a refusal."""
    return SEPARATOR.join(name for name, is_asked in asked.items() if is_asked)


def interleaves(plan: Plan | Mixed) -> bool:
    """Whether products of an accumulator alternate after a number of elements of K."""
    plans = plan.plans if isinstance(plan, Mixed) else (plan,)
    return any(stage.interleave for part in plans for term in part.terms for stage in term.stages)


def joined(*refusals: str) -> str:
    """One refusal of several: each name once, in order."""
    return SEPARATOR.join(dict.fromkeys(name for refusal in refusals if refusal for name in refusal.split(SEPARATOR)))


def of_parts(parts: Iterable[Refusal], gemm: Gemm) -> str:
    """What some part of `parts` does not carry."""
    return joined(*(refuses(gemm) for refuses in parts))


def scales(problem: Problem, kinds: Collection[ScaleKind]) -> str:
    """The scales of A and B of these kinds."""
    sides = zip("AB", problem.operands, strict=True)
    scaled = ((side, operand.scale) for side, operand in sides if operand.scale is not None)
    return joined(*(f"scales of {side} ({scale})" for side, scale in scaled if scale.kind in kinds))


def one_sided_scales(problem: Problem, kinds: Collection[ScaleKind]) -> str:
    """The scales of these kinds of an operand, where the other one has none."""
    is_one_sided = (problem.a.scale is None) != (problem.b.scale is None)
    return scales(problem, kinds) if is_one_sided else ""


def sparsity(problem: Problem) -> str:
    """The sparsity of A and B."""
    sides = zip("AB", problem.operands, strict=True)
    return joined(*(f"{operand.sparsity} sparsity of {side}" for side, operand in sides if operand.sparsity))


def sparsity_beside(problem: Problem, taken: str | None) -> str:
    """The sparsity of B, for which there is no instruction, and that of A where the instruction takes another A.

    taken: the sparsity of A that the instruction takes.
    """
    return sparsity(problem if problem.sparsity != taken else problem.with_sparsity(None))


def formats(problem: Problem) -> str:
    """Formats of A and B that differ."""
    a, b = problem.a.format, problem.b.format
    return "" if a == b else f"operands of two formats ({a} and {b})"


def unusual_operands(problem: Problem) -> str:
    """Whatever of the operands is more than one format and two layouts."""
    return joined(formats(problem), scales(problem, SUMS | ALONG_K), sparsity(problem))


def layouts(problem: Problem) -> str:
    """Operands that are not row-major, by the name of the option."""
    return named({"a_layout": problem.a.layout != "rows", "b_layout": problem.b.layout != "rows"})


def stacks(problem: Problem) -> str:
    """A batch of products."""
    return named({"stacks of matrices": problem.matrices > 1})


def image(problem: Problem) -> str:
    """An A that is gathered from an image."""
    return named({"convolutions": problem.image is not None})


def of_schedule(schedule: Schedule, names: Iterable[str]) -> str:
    """The fields of the order of summation, of `names`, that are not at their defaults."""
    return named({name: getattr(schedule, name) != getattr(_PLAIN, name) for name in names})


def of_epilogue(epilogue: Epilogue, names: Iterable[str]) -> str:
    """The fields of the epilogue, of `names`, that are not at their defaults."""
    return named({name: getattr(epilogue, name) != getattr(_PLAIN.epilogue, name) for name in names})


def epilogue(gemm: Gemm) -> str:
    """What the epilogue does besides storing the product in the plan's own format."""
    return named(
        {
            "alpha": gemm.epilogue.alpha != 1,
            "beta": gemm.epilogue.beta,
            "c": gemm.problem.has_c,
            "bias": gemm.problem.bias is not None,
            "output": gemm.output != gemm.single.output_format,
        }
    )


def runs(gemm: Gemm) -> str:
    """Sums of runs of K that leave the unit."""
    plan = gemm.plan
    is_grouped = not isinstance(plan, Mixed) and any(term.k_group is not None for term in plan.terms)
    return named({"runs of K added outside the unit": gemm.schedule.promotion_k is not None or is_grouped})


_PLAIN = Schedule()
