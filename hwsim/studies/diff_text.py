"""The parts of a comparison as text, in lines. It knows their fields; it computes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwsim.analysis.unit_difference import ARITHMETIC

if TYPE_CHECKING:
    from hwsim.analysis.run_records import Evidence
    from hwsim.studies.diff_parts import Divergence, ElementDifference, ElementErrors, SideAccuracy
    from hwsim.studies.diff_sizes import SizeHistogram

SHOWN = 4  # instructions of a side
BAR = 40  # characters of the longest bar
SIDES = ("left", "right")


def accuracy_text(accuracy: SideAccuracy) -> str:
    """The relative errors of a side."""
    return f"error: input rounding {_short(accuracy.input_rounding)}, arithmetic {_short(accuracy.arithmetic)}"


def evidence_text(evidence: Evidence, confidence: float | None) -> str:
    """How well the units' arithmetic and the order of summation of a side are known."""
    levels = ((ARITHMETIC, evidence.get("numerics")), ("order of summation", evidence.get("schedule")))
    words = [f"{what} {level}" for what, level in levels if level]
    if confidence is not None:
        words.append(
            f"library's kernel with probability {confidence:.2g}" if confidence else "library's kernel not known"
        )
    return f"evidence: {', '.join(words)}" if words else ""


def histogram_lines(sizes: SizeHistogram, elements: int) -> list[str]:
    """The histogram as lines of bars."""
    groups = sizes.grouped()
    if not groups:
        return []
    rows = [("equal", sizes.equal)]
    rows += [(f"{2.0**low:.1e} to {2.0**high:.1e}", count) for low, high, count in groups]
    most = max(count for _, count in rows)
    lines = [f"size of the differences over the RMS of C ({sizes.rms:.3g}):"]
    lines += [
        f"  {name:>18}  {count:>10,}  {100 * count / elements:5.1f} %  {'#' * -(-BAR * count // most)}".rstrip()
        for name, count in rows
    ]
    return [*lines, f"  median of the differing {sizes.median:.2g}, largest {sizes.largest:.2g}"]


def element_lines(e: ElementErrors | None, s: Divergence | None) -> list[str]:
    """Lines on the chosen element: its errors over all of K, and where its running sums diverge."""
    lines = []
    if e is not None:
        if s is None:
            lines.append(f"C[{e.row}, {e.column}] is {e.left_code} in both, and so is every sum before the last")
        if e.exact is not None:
            lines.append(
                f"C[{e.row}, {e.column}] {exact_text(e.exact, e.right_exact)}; relative error "
                f"{_relative(e.left)} left, {_relative(e.right)} right"
            )
    if s is not None:
        before = "both from zero" if s.last_equal is None else f"both {s.last_equal} before"
        lines.append(
            f"C[{s.row}, {s.column}] first differs at k = {s.k_first} to {s.k_end - 1} ({before}): "
            f"{s.left_code} ({s.left:.9g}) against {s.right_code} ({s.right:.9g})"
            + (f"; equal again at {s.equal_again} later k" if s.equal_again else "")
        )
        if s.exact is not None:
            lines.append(
                f"  {exact_text(s.exact, s.right_exact)} up to there; relative error {_relative(s.left_error)} left, "
                f"{_relative(s.right_error)} right"
            )
        both = (("left", s.left_steps, s.right_steps), ("right", s.right_steps, s.left_steps))
        for name, steps, others in both:
            unlike = [step for step in steps if not step.is_as_in(others)]
            lines += [
                f"  {name:5} term {step.term}, k = {step.k_start} to {step.k_stop - 1}: "
                f"{step.c} ({step.c_value:.9g}) becomes {step.d} ({step.d_value:.9g})\n    {step.command}"
                for step in unlike[:SHOWN]
            ]
            if not steps:
                lines.append(f"  {name:5} no instruction has these K alone (written-out sums, scaled terms)")
            if len(unlike) > SHOWN:
                lines.append(f"  {name:5} ... and {len(unlike) - SHOWN} more; --json has them")
    return lines


def exact_text(left: float, right: float | None) -> str:
    """The exact value of an element; of both sides where their units take unlike operands."""
    if right is None or right == left:
        return f"exactly: {left:.9g}"
    return f"exactly, of the operands as rounded: {left:.9g} left, {right:.9g} right"


def place_text(place: ElementDifference) -> str:
    """One differing element: where it is, both codes and values, and how far they are apart."""
    ulps = "" if place.ulps is None else f", {place.ulps} ulps"
    size = "" if place.over_rms is None else f", {place.over_rms:.2g} of the RMS"
    at = f"C[{place.row}, {place.column}]"
    return f"{at}  {place.left_code} ({place.left:.9g}) against {place.right_code} ({place.right:.9g}){ulps}{size}"


def _relative(error: float | None) -> str:
    return "unknown" if error is None else f"{error:.3g}"


def _short(error: float | None) -> str:
    return "unknown" if error is None else f"{error:.1e}" if error else "none"
