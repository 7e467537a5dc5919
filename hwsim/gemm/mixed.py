"""What a mixed plan (Ape, section 5) says of its blocks: how many take each plan, and whether one plan takes all.

It knows plans and counts; it knows no operand's values (hwsim.evaluate.mixed) and no program.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwsim.gemm.plan import Mixed, Plan

HYBRID = "hybrid"


@dataclass(frozen=True, slots=True)
class Census:
    """How many products of two blocks take each plan, and how many there are."""

    counts: tuple[int, ...]

    @property
    def total(self) -> int:
        """All products of blocks."""
        return sum(self.counts)

    @property
    def shares(self) -> tuple[float, ...]:
        """Share of each plan, 0 to 1."""
        return tuple(count / self.total for count in self.counts)

    @property
    def least(self) -> int:
        """Number of the first plan that takes every block."""
        return max(plan for plan, count in enumerate(self.counts) if count)


def census_of(mixed: Mixed) -> Census:
    """What was counted."""
    return Census(mixed.blocks)


def strategy_of(mixed: Mixed) -> str:
    """What is done: "hybrid", or the short name of the plan that all blocks take."""
    return mixed.decided or mixed.strategy


def short_name(mixed: Mixed, plan: Plan) -> str:
    """A plan's name without the mixture's."""
    return plan.scheme.removeprefix(f"{mixed.scheme}-")


def one_for_all(mixed: Mixed) -> Plan | None:
    """The plan that all blocks take, or None (hybrid)."""
    return {short_name(mixed, plan): plan for plan in mixed.plans}.get(strategy_of(mixed))
