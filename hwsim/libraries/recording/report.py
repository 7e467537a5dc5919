"""A recording as a person reads it, and as plain data for JSON."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import Any

from hwsim.libraries.recording.compare import SampleRow
from hwsim.libraries.recording.session import Recording
from hwsim.libraries.recording.shapes import GemmShape
from hwsim.report.text.words import table

HEAD = ("m x n x k", "call", "kernel", "slices", "measured us", "hwsim us", "error", "bits")
RIGHT = (0, 3, 4, 5, 6)


def recording_text(recording: Recording) -> str:
    """The table of the sample and the totals."""
    answers = recording.answers
    lines = [
        f"{recording.path}: {answers.count:,} answers of cuBLAS {recording.version} from {answers.asked:,} questions, "
        f"for {recording.device} ({recording.source})"
    ]
    for shape in answers.refused:
        m, n, k = shape.sizes
        lines.append(f"cuBLASLt refuses {m} x {n} x {k}, {shape.form.text}")
    if recording.rows:
        lines += ["", *table(map(_cells, recording.rows), HEAD, RIGHT, indent=""), "", *totals(recording)]
    lines += [
        "",
        f"take it: hwsim run --device {recording.device} --library {recording.path} ..., "
        f"or library={str(recording.path)!r}",
    ]
    return "\n".join(lines)


def _cells(row: SampleRow) -> tuple[str, ...]:
    m, n, k = row.shape.sizes
    names = (f"{m} x {n} x {k}", row.shape.form.text)
    if row.problem:
        return (*names, "", "", "", "", "", f"not run: {row.problem}")
    bits = "equal"
    if row.first is not None:
        i, j, of_gpu, of_hwsim = row.first
        bits = f"{row.differing} of {row.results} differ, first ({i}, {j}): GPU {of_gpu}, hwsim {of_hwsim}"
    if not row.known:
        bits += "; how this kernel adds over K is not known"
    error = "-" if row.error is None else f"{100 * row.error:+.1f} %"
    return (*names, row.kernel, str(row.split_k), _us(row.measured_us), _us(row.simulated_us), error, bits)


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def totals(recording: Recording) -> list[str]:
    """Bits and times over the sample, in words."""
    errors = [abs(row.error) for row in recording.run if row.error is not None]
    results = sum(row.results for row in recording.run)
    lines = [f"bits: {recording.equal} of {len(recording.run)} GEMMs equal in every bit, {results:,} results compared"]
    if errors:
        mean, median = 100 * statistics.mean(errors), 100 * statistics.median(errors)
        lines.append(
            f"time beyond a launch: mean absolute error {mean:.1f} %, median {median:.1f} %, of {len(errors)} GEMMs"
        )
    problems = Counter(row.problem for row in recording.rows if row.problem)
    lines += [f"not run: {count} of {len(recording.rows)} GEMMs: {problem}" for problem, count in problems.items()]
    return lines


def recording_dict(recording: Recording) -> dict[str, Any]:
    """Plain data, ready for JSON."""
    errors = [abs(row.error) for row in recording.run if row.error is not None]
    return {
        "path": str(recording.path),
        "device": recording.device,
        "gpu": {
            "name": recording.gpu.name,
            "sms": recording.gpu.cores,
            "driver": recording.gpu.driver,
            "cuda": recording.gpu.cuda,
        },
        "library": "cublas",
        "version": recording.version,
        "source": recording.source,
        "notes": list(recording.notes),
        "questions": recording.answers.asked,
        "answers": recording.answers.count,
        "refused": [_shape_dict(shape) for shape in recording.answers.refused],
        "sample": [_row_dict(row) for row in recording.rows],
        "totals": {
            "run": len(recording.run),
            "equal": recording.equal,
            "differ": len(recording.run) - recording.equal,
            "not_run": len(recording.rows) - len(recording.run),
            "results": sum(row.results for row in recording.run),
            "mean_absolute_error": statistics.mean(errors) if errors else None,
            "median_absolute_error": statistics.median(errors) if errors else None,
        },
    }


def _shape_dict(shape: GemmShape) -> dict[str, Any]:
    return dict(zip("mnk", shape.sizes, strict=True)) | shape.form.options | {"bias": shape.form.bias}


def _row_dict(row: SampleRow) -> dict[str, Any]:
    if row.problem:
        return _shape_dict(row.shape) | {"problem": row.problem, "kernels": list(row.kernels)}
    first = None
    if row.first is not None:
        first = dict(zip(("row", "column", "gpu", "hwsim"), row.first, strict=True))
    return _shape_dict(row.shape) | {
        "kernel": row.kernel,
        "split_k": row.split_k,
        "known": row.known,
        "results": row.results,
        "differing": row.differing,
        "first": first,
        "measured_us": row.measured_us,
        "hwsim_us": row.simulated_us,
        "error": row.error,
        "kernels": list(row.kernels),
    }
