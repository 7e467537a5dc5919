"""A result as a notebook shows it: a few facts and its engines as HTML. It knows results and words."""

from __future__ import annotations

from hwsim.analysis.engine_shares import BUSY, engine_shares
from hwsim.analysis.stall_words import stall_words
from hwsim.report.notebook import card
from hwsim.report.text.run_text import time_facts
from hwsim.report.text.words import percent
from hwsim.result import Result


def result_card(result: Result) -> str:
    """The HTML of a result."""
    product = "" if result.c is None else f", {result.c.dtype}"
    pairs: list[tuple[str, object]] = [
        ("verdict", result.verdict),
        ("device", result.device),
        ("scheme", result.scheme),
        ("C", f"{result.m:,} x {result.n:,}, K = {result.k:,}{product}"),
        *time_facts(result),
    ]
    if result.error is not None:
        pairs.append(("relative error", f"{result.error.relative_frobenius:.3g} (Frobenius norm)"))
    pairs += [(f"evidence of {name}", level) for name, level in result.evidence.items()]
    rows = [
        (name, percent(shares[BUSY]), _longest(result.engines[name].stall_cycles))
        for name, shares in engine_shares(result.times).items()
    ]
    return card("hwsim result", pairs, ("engine", "busy", "waits most for"), rows)


def _longest(stall_cycles: dict[str, float]) -> str:
    """The cause of the most stalled cycles."""
    cause = max(stall_cycles, key=lambda cause: stall_cycles[cause], default="")
    return stall_words(cause) if cause else ""
