"""The result of an attention as text: sizes, kernel, evidence, cycles, and where the time went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwsim.report.text.run_text import (
    NAMES,
    NUMERICS_CAVEAT,
    engine_lines,
    phase_lines,
    state_text,
    traffic_lines,
    verdict_lines,
)
from hwsim.report.text.words import count, duration, facts, percent, plural

if TYPE_CHECKING:
    from hwsim.attending.attention_result import AttentionResult

TIMING_CAVEAT = "some rates and latencies are assumed; the verdict compares with a chip's times"


def attention_text(result: AttentionResult, inputs: str, chosen: str = "") -> str:
    """The report of `result`. inputs: where the operands came from. chosen: who chose the kernel, where none was
    named.
    """
    parts = [
        verdict_lines(result),
        _heading(result, inputs, chosen),
        _time(result),
        phase_lines(result),
        engine_lines(result),
        traffic_lines(result),
    ]
    if result.result_sha256 is not None:
        parts.append(facts([("result", f"SHA-256 {result.result_sha256}")]))
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def _heading(result: AttentionResult, inputs: str, chosen: str) -> list[str]:
    record, order, chip = result.record, result.order, result.call.device
    heads = plural(record.heads, "head")
    shared = f", {count(record.key_heads)} of keys" if record.groups > 1 else ""
    mask = ", causal" if record.is_causal else ""
    width = plural(record.width, "element")
    if record.width != record.value_width:
        width = f"{record.width} and {plural(record.value_width, 'element')}"
    queries = plural(record.queries, "query", "queries")
    sizes = f"{heads}{shared} of {width}, {queries}, {plural(record.keys, 'key')}{mask}"
    formats = record.format
    if record.result_format != formats:
        formats += f" into {record.result_format}"
    pairs = [
        ("problem", f"{sizes}; {formats}; {inputs}"),
        ("work", f"{plural(record.useful_macs, 'MAC')} in both products"),
        ("device", f"{chip.name}: {chip.title}, {plural(chip.cores, 'core')} at {chip.clock_mhz:,g} MHz"),
        ("kernel", f"{result.backend}: {result.kernel}, {order.summary}"),
        *([("", chosen)] if chosen else []),
        ("", f"the order of the sums is from: {order.source}"),
    ]
    level = result.levels["numerics"]
    caveat = f" ({NUMERICS_CAVEAT[level]})" if level in NUMERICS_CAVEAT else ""
    pairs.append(("evidence", f"numerics: {level}{caveat}"))
    if "timing" in result.levels:
        pairs.append(("", f"timing: {result.levels['timing']} ({TIMING_CAVEAT})"))
    if result.by_program:
        pairs.append(("bits", "computed by the program"))
    return facts(pairs, least=NAMES)


def _time(result: AttentionResult) -> list[str]:
    if result.cycles is None or result.seconds is None or result.state is None:
        return facts([("cycles", f"none: {result.timing_note}")], least=NAMES)
    launches = "launches included, without the host" if result.launch_overhead else "without launches and host"
    pairs = [("cycles", f"{count(result.cycles)} cycles = {duration(result.seconds)}, {launches}")]
    if result.tflops is not None and result.peak_fraction is not None:
        share = f"{percent(result.peak_fraction)} of the instruction's peak"
        pairs.append(("rate", f"{result.tflops:,.2f} TFLOP/s (2 x MACs / time), {share}"))
    pairs.append(("state", state_text(result.state, result.times.chip)))
    if result.measured is not None:
        expected = duration(float(f"{result.measured['expected_seconds']:.2g}"))
        pairs.append(
            (
                "expected",
                f"about {expected} without launches: {result.measured['median']:.2g} times the cycles' time, the "
                f"median of the calls that the verdict names, measured on an H200",
            )
        )
    return facts(pairs, least=NAMES)
