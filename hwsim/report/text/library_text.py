"""Reports on a GEMM library: its kernels as tables, or every number with its source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hwsim.libraries.model.kernels import KernelModel, Library
from hwsim.report.text.provenance_text import evidence_text, provenance_table
from hwsim.report.text.words import facts, table

if TYPE_CHECKING:
    from hwsim.gemm.record import Gemm
    from hwsim.gemm.schedule import Schedule

HEAD = ("kernel", "tile m x n", "K bytes", "warp", "accumulators", "stages", "used where", "evidence")


def library_text(library: Library) -> str:
    """The kernels of `library` and its split-K rules, without sources."""
    rules = library.split_k
    pairs = [
        ("name", library.name),
        ("title", library.title),
        *([("version", library.version)] if library.version else []),
        ("families", ", ".join(library.families)),
        ("seen on", ", ".join(library.devices) or "no chip"),
        ("slices of K", f"{', '.join(map(str, rules.counts))}; of {rules.min_slice} elements at least"),
        *([("observations", ", ".join(library.observations))] if library.observations else []),
        ("evidence", evidence_text(library.evidence)),
        ("SHA-256", library.sha256),
    ]
    return "\n".join([*facts(pairs), *_kernels(library)])


def kernel_text(kernel: str, slices: int, working: int | None = None) -> str:
    """A kernel, and how it divides K. working: how many slices hold elements of K; None: all."""
    empty = (
        ""
        if working is None or working >= slices
        else f", of which {working} {'holds' if working == 1 else 'hold'} work"
    )
    return f"{kernel}, {'K in one piece' if slices == 1 else f'K in {slices} slices{empty}'}"


def working_slices(schedule: Schedule, k: int, *, is_known: bool) -> int | None:
    """How many slices of K = k hold elements; None where the schedule does not say it: its order is not known
    (is_known), or is written out.
    """
    is_rule = is_known and schedule.sum is None and not schedule.regions
    return len(schedule.slice_lengths(k)) if is_rule else None


def kernel_of(gemm: Gemm) -> str | None:
    """The kernel of a library that a record's product is of, and how it divides K; None where no library chose one."""
    kernel = gemm.decided("kernel")
    if kernel is None:
        return None
    cut = gemm.decided("split_k")
    working = working_slices(gemm.schedule, gemm.problem.k, is_known=gemm.is_order_known)
    slices = len(gemm.schedule.slice_lengths(gemm.problem.k)) if cut is None else int(cut.value)
    return kernel_text(str(kernel.value), slices, working)


def sources_text(library: Library) -> str:
    """Every number with its path, value, evidence, source, and the range that sources give; then the citations."""
    return provenance_table(library.model_dump(mode="json"), library.evidence, library.citations)


def _kernels(library: Library) -> Iterator[str]:
    for name, group in library.kernels.items():
        bits = f", operands of {', '.join(map(str, group.bits))} bits" if group.bits else ""
        yield from ("", f"{name}: {group.engine}{f', {group.instruction}' if group.instruction else ''}{bits}")
        rows = [
            (
                row,
                "{} x {}".format(*kernel.tile) + (f", by {kernel.cta_group} CTAs" if kernel.cta_group > 1 else ""),
                str(kernel.k_bytes),
                "{} x {}".format(*kernel.warp),
                str(kernel.accumulators),
                str(kernel.stages or "as fit"),
                _conditions(kernel),
                str(library.level(f"kernels.{name}.rows.{row}")),
            )
            for row, kernel in group.rows.items()
        ]
        yield from table(rows, HEAD, right=(2, 4, 5))


def _conditions(kernel: KernelModel) -> str:
    """The conditions for the use of a kernel, in words."""
    conditions = []
    if kernel.max_waves is not None:
        conditions.append("one wave" if kernel.max_waves == 1 else f"up to {kernel.max_waves} waves")
    if kernel.max_k is not None:
        conditions.append(f"K up to {kernel.max_k}")
    if kernel.mn_major is not None:
        conditions.append("an MN-major operand" if kernel.mn_major else "K-major operands")
    return ", ".join(conditions)
