"""The result of a run as text: problem, device, cycles, errors, and a breakdown of the time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Protocol

from hwsim.analysis.engine_shares import BUSY, engine_shares
from hwsim.analysis.stall_words import stall_words
from hwsim.gemm.summation import Reduction
from hwsim.machines.l2_state import STATES
from hwsim.report.text.cost_text import cost_facts
from hwsim.report.text.words import count, data, duration, facts, percent, plural, table, value
from hwsim.request.declarations import DEFAULT_SCHEME

if TYPE_CHECKING:
    from hwsim.analysis.advice import Advice
    from hwsim.analysis.program_times import Times
    from hwsim.analysis.run_records import EngineUse, Phase, TimingState
    from hwsim.analysis.verdict import Verdict
    from hwsim.devices.device import Device
    from hwsim.gemm.record import Gemm
    from hwsim.result import Result

# What the weakest level of evidence means for the reader, where it says less than the best.
NUMERICS_CAVEAT = {
    "assumption": "no source fixes all of this arithmetic: a chip may give other last bits",
    "unknown": "this chip's arithmetic is not known: the chip may give other last bits",
    "model": "the arithmetic follows from a model, not from the chip: it may give other last bits",
    "paper": "a publication says so: no result of these instructions was compared here",
    "silicon-by-others": "compared with results of this chip that others recorded",
}
TIMING_CAVEAT = {
    "assumption": "some rates and latencies are assumed: a chip may be faster or slower",
    "unknown": "some rates and latencies are not known: the chip may be faster or slower",
    "model": "some rates and latencies follow from a model: the chip may be faster or slower",
    "fitted": "some numbers were fitted to measured times: other work may be faster or slower",
}
SCHEDULE_CAVEAT = {
    "assumption": "one chain over K, or the schedule asked for: no library's order was compared with it",
}
LIBRARY_CAVEAT = {
    "assumption": "the library's order is assumed, as `decided` says: its kernels may add in another one",
}
ASSUMED = "assumption"
BY_FILE = "the device file is the definition: it cites no sources"  # instead of what a chip may do otherwise
CLOCK_SOURCES = {
    "asked": "as asked for",
    "under load": "under this load",
    "device file": "the device file's: none is known under load",
}
ADVISED = 2  # changes of the call, and of the device where there are fewer; --json has all
NAMES = len("evidence")  # columns of the names of facts above the tables
SMALL_SHARE = 0.0005  # stalls below it are left out; --json has them all
ERROR_NAMES = {"relative_frobenius": "relative, Frobenius norm", "max_relative": "largest relative of one element"}


class Timed(Protocol):
    """What the lines on times need of a result."""

    @property
    def cycles(self) -> int | None: ...
    @property
    def times(self) -> Times: ...
    @property
    def phases(self) -> list[Phase]: ...
    @property
    def engines(self) -> dict[str, EngineUse]: ...
    @property
    def traffic_bytes(self) -> dict[str, int]: ...
    @property
    def verdict(self) -> Verdict: ...


def problem_text(sizes: tuple[int, int, int], scheme: str, chip: Device, inputs: str, gemm: Gemm) -> str:
    """What is computed, in lines that need no result; `inputs` says where A and B came from. gemm: the record."""
    m, n, k = (count(size) for size in sizes)
    matrices = gemm.problem.matrices
    work = plural(matrices * sizes[0] * sizes[1] * sizes[2], "MAC")
    stack = f" in a stack of {count(matrices)}" if gemm.problem.lead and gemm.problem.image is None else ""
    return "\n".join(
        facts(
            [
                ("problem", f"C[{m} x {n}] = A[{m} x {k}] B[{k} x {n}]{stack}, {work}; {inputs}"),
                ("formats", formats_text(gemm)),
                ("scheme", scheme),
                ("device", f"{chip.name}: {chip.title}, {plural(chip.cores, 'core')} at {chip.clock_mhz:,g} MHz"),
            ],
            least=NAMES,
        )
    )


def formats_text(gemm: Gemm) -> str:
    """The formats of A and B in memory, how many of their elements share a scale (rows x K), and the format of C."""
    a, b = gemm.problem.a.format, gemm.problem.b.format
    pieces = gemm.single.a_pieces, gemm.single.b_pieces
    if all(len(of_side) == 1 for of_side in pieces) and pieces[0][0].format == a == b:
        b = pieces[1][0].format  # operands of the unit's own formats, which may be two
    operands = f"A and B in {a}" if a == b else f"A in {a}, B in {b}"
    scales = [
        f", {name}'s scales {scale}"
        for name, scale in (("A", gemm.problem.a.scale), ("B", gemm.problem.b.scale))
        if scale is not None
    ]
    return f"{operands}{''.join(scales)}, C in {gemm.output} (--output FORMAT for another)"


def run_text(result: Result, problem: str = "") -> str:
    """The report of `result`. problem: what was computed, as of `problem_text`."""
    parts = [
        verdict_lines(result),
        problem.splitlines(),
        _heading(result),
        _choice(result),
        _time(result),
        phase_lines(result),
        _errors(result),
        engine_lines(result),
        _folds(result),
        traffic_lines(result),
        _decisions(result),
        _warnings(result),
        _hashes(result),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def verdict_lines(result: Timed) -> list[str]:
    """The verdict on the run, and what would save most."""
    verdict = result.verdict
    pairs = [("verdict" if i == 0 else "", sentence) for i, sentence in enumerate(verdict.sentences)]
    pairs += [("advice" if i == 0 else "", str(change)) for i, change in enumerate(_shown(verdict.advice))]
    return facts(pairs, least=NAMES)


def _shown(advice: Sequence[Advice]) -> list[Advice]:
    """The best changes of the call, and of the device as many as there is room for, at least one."""
    of_call = [change for change in advice if not change.of_device][:ADVISED]
    of_device = [change for change in advice if change.of_device]
    return of_call + of_device[: max(1, ADVISED - len(of_call))]


def _heading(result: Result) -> list[str]:
    pairs = [
        (
            "options",
            ", ".join(f"{name} {value(setting)}" for name, setting in _settings(result).items() if name != "choice"),
        ),
    ]
    is_own = result.call is not None and result.call.device.is_defined_by_its_file
    for what, caveats in (
        ("numerics", NUMERICS_CAVEAT),
        ("schedule", SCHEDULE_CAVEAT if result.gemm.library is None else LIBRARY_CAVEAT),
        ("timing", TIMING_CAVEAT),
    ):
        level = str(result.evidence.get(what, ""))
        if level:
            caveat = BY_FILE if is_own and level == ASSUMED and what != "schedule" else caveats.get(level)
            pairs.append(
                ("evidence" if what == "numerics" else "", f"{what}: {level}{f' ({caveat})' if caveat else ''}")
            )
    device = result.device if result.call is None else result.call.device.argument
    pairs.append(("", f"every number's source: hwsim devices show {device} --sources"))
    return facts(pairs)


def _settings(result: Result) -> dict[str, Any]:
    """The options, with the plan's number or format where an option of the scheme left it open."""
    plan = result.gemm.single
    moduli = {piece.residue.modulus for piece in plan.a_pieces if piece.residue and piece.residue.part != "bound"}
    of_plan: dict[str, Any] = {"slices": len(plan.a_pieces), "moduli": len(moduli), "result": plan.output_format}
    return {name: of_plan.get(name) if item is None else item for name, item in result.options.items()}


def _choice(result: Result) -> list[str]:
    """The lines on the candidates of scheme="auto"."""
    choice = result.options.get("choice")
    if choice is None:
        return []
    rows = [
        (
            candidate["scheme"] + "".join(f" {name} {item}" for name, item in candidate["options"].items()),
            "" if candidate["error"] is None else f"{candidate['error']:.1e}",
            "" if candidate["cycles"] is None else count(candidate["cycles"]),
            "" if candidate["seconds"] is None else duration(candidate["seconds"]),
            candidate["verdict"],
            candidate["detail"],
        )
        for candidate in choice["candidates"]
    ]
    head = ("scheme", "error", "cycles", "time", "", "")
    title = (
        f"choice: error at most {choice['error_target']:g} (relative, Frobenius norm); predicted from {choice['basis']}"
    )
    return [title, *table(rows, head, right=(1, 2, 3))]


def time_facts(result: Result) -> list[tuple[str, str]]:
    """(name, text) of cycles, time and rate. A library's time is not that of the cycles: both are named for what they
    are of, and one may be there without the other.
    """
    if result.seconds is None or result.state is None:
        return [("cycles", f"none: {result.timing_note}")]
    state = ("state", state_text(result.state, result.times.chip))
    if result.times.by_library:
        cycles = (
            f"none: {result.timing_note}" if result.cycles is None else f"{count(result.cycles)} cycles of the program"
        )
        passes = _passes_before(result)
        apart = f" and without {', '.join(passes)}, which are no call of the library" if passes else ""
        time = f"{duration(result.seconds)} with fitted times of the library's kernels, {_without(result)}{apart}"
        facts = [("cycles", cycles), ("time", time)]
    else:
        facts = [("cycles", f"{count(result.cycles or 0)} cycles = {duration(result.seconds)}, {_without(result)}")]
        facts += [("assumed", result.timing_note)] if result.timing_note else []
    if result.tflops is None:
        return [*facts, ("rate", "none: the kernels take no longer than a launch"), state]
    share = f"{_share(result.peak_fraction)} of the scheme's peak"
    return [*facts, ("rate", f"{result.tflops:,.2f} TFLOP/s (2mnk / time), {share}"), state]


def state_text(state: TimingState, chip: Device | None) -> str:
    """What a time is of, in words: the state of L2 where the chip has one, the clock, and the kernels that are in it.
    chip: None where no program was timed.
    """
    has_l2 = chip is None or chip.l2 is not None
    parts = [f"L2 {STATES[state['l2']].meaning} (l2={state['l2']})" if has_l2 else "the device has no L2"]
    if state["clock_mhz"] is not None:
        limit = "" if state["power_limit_w"] is None else f", board of {state['power_limit_w']:,g} W"
        source = CLOCK_SOURCES[state["clock"]]
        parts.append(f"clock {state['clock_mhz']:,g} MHz, {source}{limit if state['clock'] == 'under load' else ''}")
    if state["kernels"]:
        parts.append(f"{'cycles are of' if state['by_library'] else 'kernels'} {', '.join(state['kernels'])}")
    return "; ".join(parts)


def _time(result: Result) -> list[str]:
    pairs = time_facts(result)
    if result.cycles is not None:
        pairs.append(("work", _work(result)))
        sums = [region.sum for region in result.gemm.schedule.regions]
        is_shared = any(isinstance(total, Reduction) and len(total.parts) > 1 for total in sums)
        pairs += [("tiles" if i == 0 else "", _tiles(kernel, is_shared)) for i, kernel in enumerate(result.occupancy)]
        pairs += [("memory" if i == 0 else "", _memory(kernel)) for i, kernel in enumerate(result.occupancy)]
    return facts([*pairs, *cost_facts(result)])


def _work(result: Result) -> str:
    """The products that the matrix units compute; they skip those with the elements that 2:4 sparsity leaves out."""
    sparsity = result.gemm.problem.sparsity
    useful, padded = (result.macs[name] // (1 if sparsity is None else 2) for name in ("useful", "padded"))
    skipped = f"; {count(result.macs['useful'] - useful)} are skipped ({sparsity})" if sparsity else ""
    return f"{count(useful)} products in the matrix units, {count(padded)} with padding{skipped}"


def tiles_text(x: dict[str, Any]) -> str:
    """The tiles of C of a kernel, and how often each is computed."""
    slices = x.get("slices", 1)
    cut = "" if slices == 1 else f", each in {plural(slices, 'slice')} of K,"
    return f"{plural(x['tiles'] // slices, 'tile')} of C{cut}"


def _memory(x: dict[str, Any]) -> str:
    return f"{x['kernel']}, per core: {memory_text(x)}"


def memory_text(x: dict[str, Any]) -> str:
    """What the buffers of a kernel take of each memory of a core."""
    room: dict[str, int] = x["capacity_bytes"]
    used = [f"{name} {data(size)} of {data(room[name])}" for name, size in x["memory_bytes"].items()]
    return ", ".join(used) or "none"


def _tiles(x: dict[str, Any], is_shared: bool) -> str:
    """How the tiles of a kernel fill the cores. is_shared: cores share the K of some, and so work in no waves."""
    idle = f", {plural(x['idle_cores'], 'core')} idle" if x["idle_cores"] else ", none idle"
    waves = "which share the K of some" if is_shared else plural(x["waves"], "wave")
    return f"{x['kernel']}: {tiles_text(x)} on {plural(x['cores'], 'core')}, {waves}{idle}"


def _decisions(result: Result) -> list[str]:
    """The lines on who decided what."""
    rows = [
        (decision.name, decision.value, decision.by, decision.evidence, decision.why)
        for decision in result.gemm.decisions
    ]
    return ["decided", *table(rows, ("what", "", "by", "evidence", "why"))]


def _share(fraction: float | None) -> str:
    return "an unknown share" if fraction is None else percent(fraction)


def _without(result: Result) -> str:
    has_launches = "launch_overhead" in result.options
    parts = ["the host" if has_launches else "host"]
    if _is_scaled(result) and result.gemm.scheme != DEFAULT_SCHEME:
        parts.append("quantisation of A and B")
    if has_launches:
        return f"launches included, without {' and '.join(parts)}"
    return f"without {', '.join(['launches', *parts[:-1]])} and {parts[-1]}"


def _is_scaled(result: Result) -> bool:
    return any(side.scale is not None for side in result.gemm.problem.operands)


def _passes_before(result: Result) -> list[str]:
    """The kernels of the program before the first that multiplies: casts and splits of operands."""
    mapping = result.gemm.mapping
    products = {kernel.name for kernel in mapping.kernels} if mapping is not None else set()
    return list(takewhile(lambda name: name not in products, (phase["name"] for phase in result.phases)))


def phase_lines(result: Timed) -> list[str]:
    """The device kernels with their times."""
    if result.cycles is None:
        return []
    total = result.cycles or 1
    rows = [
        (phase["name"], count(phase["cycles"]), duration(phase["seconds"]), percent(phase["cycles"] / total))
        for phase in result.phases
    ]
    of = "phases of the program, whose time is not the library's" if result.times.by_library else "phases"
    return [of, *table(rows, ("kernel", "cycles", "time", "share"), right=(1, 2, 3))]


def _errors(result: Result) -> list[str]:
    errors = result.error
    if errors is None:
        return []
    baseline = errors["baseline"]
    rows = [(words, _error(errors[key]), _error(baseline[key])) for key, words in ERROR_NAMES.items()]
    if errors.input_rounding is not None and errors.arithmetic is not None:
        rounding, arithmetic = (part.relative_frobenius for part in (errors.input_rounding, errors.arithmetic))
        how = "quantisation" if _is_scaled(result) else "input rounding"
        rows[1:1] = [
            (f"  {how} to {result.gemm.single.a_pieces[0].format}", _error(rounding), "none"),
            ("  arithmetic", _error(arithmetic), rows[0][2]),
        ]
    if errors.finite is not None and errors.finite.elements:
        rows += [
            (f"of the {plural(errors.finite.elements, 'other element')}: {words}", _error(errors.finite[key]), "")
            for key, words in ERROR_NAMES.items()
        ]
    reference = "the exact product" if result.c is not None and result.c.dtype == "float64" else "fp64"
    sampled = f", {errors['rows']} rows" if "rows" in errors else ""
    return [
        f"error against {reference}{sampled}",
        *table(rows, ("", result.scheme, "fp32 FMA chain"), right=(1, 2)),
        *(f"  {note}" for note in error_notes(result)),
    ]


def error_notes(result: Result) -> list[str]:
    """Sentences on the error: the worst element and how to follow it, elements that are not finite, and a baseline
    without a number.
    """
    errors = result.error
    if errors is None:
        return []
    notes = []
    if errors.worst is not None and result.c is not None:
        worst = errors.worst
        place = ",".join(map(str, worst.element))
        ulps = "" if worst.ulps is None else f", {worst.ulps:,.4g} ulp off"
        notes.append(
            f"largest error: C[{place}] = {worst.computed:.9g}, exactly {worst.exact:.9g}{ulps}; "
            f"condition of its sum {worst.condition:,.4g}"
        )
        if result.values is None and result.c.shape[-2:] == (result.m, result.n):
            notes.append(f"how it came about: the same command with --values {place}")
    if errors.finite is not None:
        finite, zero = errors.finite, errors.finite.zero or 0
        if finite.undefined > zero:
            notes.append(
                f"{plural(finite.undefined - zero, 'element')} without an error, infinite or NaN; the exact result of "
                f"{count(finite.overflowed)} is finite"
            )
        if zero:
            notes.append(f"{plural(zero, 'element')} without a relative error: exactly 0, and C is not")
    if errors.norm_note is not None:
        notes.append(f"relative errors in the norm undefined: {errors.norm_note}")
    if errors.baseline_note is not None:
        notes.append(f"fp32 FMA chain undefined: {errors.baseline_note}")
    return notes


def _error(number: float) -> str:
    return f"{number:.3e}" if number - number == 0 else "undefined"


def engine_lines(result: Timed) -> list[str]:
    """What each engine did with the time."""
    rows: list[tuple[str, ...]] = []
    for name, shares in engine_shares(result.times).items():
        by_words: dict[str, float] = {}
        for cause, share in shares.items():
            if cause != BUSY:
                by_words[stall_words(cause)] = by_words.get(stall_words(cause), 0.0) + share
        why = [
            f"{percent(share)} {words}"
            for words, share in sorted(by_words.items(), key=lambda item: -item[1])
            if share >= SMALL_SHARE
        ]
        rows.append((name, percent(shares[BUSY]), "busy", why[0] if why else ""))
        rows += [("", "", "", line) for line in why[1:]]
    time = "the program's time" if result.times.by_library else "the time"
    head = f"where {time} went (each engine: shares of the time of all cores)"
    return [head, *table(rows, right=(1,))] if rows else []


def _folds(result: Result) -> list[str]:
    """What the folds of systolic arrays consist of."""
    folds = result.folds
    if folds is None:
        return []
    rows = [(name, count(round(cycles)), percent(share)) for name, (cycles, share) in folds.shares().items()]
    return ["folds of the arrays (sums over all; two tiles in the PEs overlap)", *table(rows, right=(1, 2))]


def traffic_lines(result: Timed) -> list[str]:
    """The bytes that crossed links and memories."""
    rows = [(name, data(size), f"{count(size)} bytes") for name, size in result.traffic_bytes.items()]
    return ["traffic", *table(rows, right=(1, 2))] if rows else []


def _warnings(result: Result) -> list[str]:
    if not result.warnings:
        return []
    return ["warnings", *(f"  {warning['message']} [{warning['code']}]" for warning in result.warnings)]


def _hashes(result: Result) -> list[str]:
    pairs = [
        ("hwsim", f"{result.hwsim_version}, kernel {result.kernel}"),
        ("device", f"SHA-256 {result.device_sha256}"),
    ]
    if result.operands_sha256 is not None:
        pairs += [(name.upper(), f"SHA-256 {digest}") for name, digest in result.operands_sha256.items()]
    if result.result_sha256 is not None:
        pairs.append(("result", f"SHA-256 {result.result_sha256}"))
    return facts(pairs)
