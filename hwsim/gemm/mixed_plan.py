"""Statistics of a mixed plan (Ape, section 5): how many block products need each plan, and whether one plan suffices.

The module knows plans and counts; it knows no operand values (hwsim.evaluate.mixed) and no program.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwsim.gemm.plan import Mixed, Plan

HYBRID = "hybrid"


@dataclass(frozen=True, slots=True)
class BlockCounts:
    """For each plan of a mixture, the number of block products (block of A times block of B) that need it."""

    counts: tuple[int, ...]

    @property
    def total(self) -> int:
        """Number of all block products."""
        return sum(self.counts)

    @property
    def shares(self) -> tuple[float, ...]:
        """Share of each plan among the block products, 0 to 1."""
        return tuple(count / self.total for count in self.counts)

    @property
    def cheapest_plan(self) -> int:
        """Index of the cheapest plan that is valid for every block."""
        return max(plan for plan, count in enumerate(self.counts) if count)


def block_counts_of(mixed: Mixed) -> BlockCounts:
    """The counts stored in a mixed plan."""
    return BlockCounts(mixed.blocks)


def strategy_of(mixed: Mixed) -> str:
    """The strategy in use: "hybrid", or the short name of the one plan for all blocks."""
    return mixed.decided or mixed.strategy


def short_name(mixed: Mixed, plan: Plan) -> str:
    """A plan's name without the prefix of the mixture's name."""
    return plan.scheme.removeprefix(f"{mixed.scheme}-")


def one_for_all(mixed: Mixed) -> Plan | None:
    """The one plan that all blocks use, or None with the strategy "hybrid"."""
    return {short_name(mixed, plan): plan for plan in mixed.plans}.get(strategy_of(mixed))
