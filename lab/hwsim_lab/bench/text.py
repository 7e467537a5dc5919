"""The report of `hwsim bench` as text tables, from its JSON object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hwsim.report.text.words import count, duration, percent, table

Row = Mapping[str, Any]


def text(found: Mapping[str, Any]) -> str:
    """The report: all sections that are not empty."""
    machine = found["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in machine["packages"].items() if number)
    parts = [[f"{machine['processor']}, {machine['threads']} threads; kernel {found['kernel']}; {versions}"]]
    for name, lines in (
        ("units", _units),
        ("conversions", _conversions),
        ("timing", _timing),
        ("schemes", _schemes),
        ("execution", _executions),
    ):
        if found[name]:
            parts.append(lines(found[name]))
    return "\n\n".join("\n".join(part) for part in parts)


def share(value: float) -> str:
    """A ratio as text; below one as 1/x."""
    return f"1/{1 / value:.1f}" if value < 1 else f"{value:.2f}"


def _wanted(value: float | None) -> str:
    return "" if value is None else f"wanted {share(value) if value >= 1 else f'1/{1 / value:g}'}"


def _units(rows: Sequence[Row]) -> list[str]:
    head = ("device", "format", "exponents", "model", "threads", "GMAC/s", "NumPy", "of NumPy", "")
    body = [
        (
            row["device"] or "-",
            row["format"],
            row["exponents"],
            row["model"],
            str(row["threads"]),
            f"{row['gmac_per_second']:.2f}",
            f"{row['numpy_gmac_per_second']:.1f}",
            share(row["ratio"]),
            _wanted(row["wanted"]) if row["threads"] == 1 else "",
        )
        for row in rows
    ]
    size = rows[0]["size"]
    return [
        f"Units, {size}^3, beside NumPy's matmul of float32 (float64 for fp64) with as many threads",
        *table(body, head, right=(4, 5, 6, 7)),
    ]


def _conversions(rows: Sequence[Row]) -> list[str]:
    head = ("to", "rounding", "10^9/s", "ml_dtypes", "torch", "of torch", "")
    body = [
        (
            row["format"],
            row["rounding"],
            f"{row['per_second'] / 1e9:.2f}",
            f"{row['ml_dtypes_per_second'] / 1e9:.2f}",
            "-" if row["torch_per_second"] is None else f"{row['torch_per_second'] / 1e9:.2f}",
            "-" if row["ratio"] is None else f"{row['ratio']:.2f}",
            "" if row["wanted"] is None else f"wanted {row['wanted']:g}",
        )
        for row in rows
    ]
    return [
        f"Conversions of {count(rows[0]['elements'])} float32, one thread (ml_dtypes, torch: to nearest)",
        *table(body, head, right=(2, 3, 4, 5)),
    ]


def _timing(rows: Sequence[Row]) -> list[str]:
    head = ("device", "scheme", "simulated", "of all cores", "run", "engine", "10^6 instructions/s", "")
    body = [
        (
            row["device"],
            row["scheme"],
            count(row["simulated"]),
            count(row["of_program"]),
            duration(row["seconds"]),
            duration(row["engine_seconds"]),
            f"{row['per_second'] / 1e6:.2f}",
            f"wanted {row['wanted'] / 1e6:g}",
        )
        for row in rows
    ]
    return [
        f"Timing engine, {rows[0]['m']}^3: CPU time, one core; instructions that it executes one by one, none skipped",
        *table(body, head, right=(2, 3, 4, 5, 6)),
    ]


def _schemes(rows: Sequence[Row]) -> list[str]:
    head = ("scheme", "device", "threads", "time", "outside dot kernels", "", "NumPy products", "")
    body = [
        (
            row["scheme"],
            row["device"],
            str(row["threads"]),
            duration(row["seconds"]),
            percent(row["outside"]),
            f"wanted {percent(row['wanted_outside'])}",
            f"{row['times']:.1f}",
            "" if row["wanted_times"] is None else f"wanted {row['wanted_times']:g}",
        )
        for row in rows
    ]
    return [
        f"Schemes, {rows[0]['size']}^3, time beside NumPy's float32 matmul with as many threads",
        *table(body, head, right=(2, 3, 4, 6)),
    ]


def _executions(rows: Sequence[Row]) -> list[str]:
    head = ("scheme", "device", "threads", "evaluator", "program", "of evaluator", "first", "")
    body = [
        (
            row["scheme"],
            row["device"],
            str(row["threads"]),
            duration(row["evaluator_seconds"]),
            duration(row["seconds"]),
            f"{row['ratio']:.2f}",
            duration(row["first_seconds"]),
            f"wanted {row['wanted']:g}",
        )
        for row in rows
    ]
    return [
        f"Bits by programs, {rows[0]['size']}^3, beside the evaluator (one thread: CPU time); first: its first run",
        *table(body, head, right=(2, 3, 4, 5, 6)),
    ]
