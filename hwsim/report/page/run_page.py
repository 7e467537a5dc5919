"""The page of one run: what came out, where the error and the time are, and what every number rests on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hwsim.analysis.advice import Advice
from hwsim.analysis.engine_shares import engine_shares
from hwsim.analysis.inputs import NORMAL, words_of_draw
from hwsim.analysis.stall_words import ENGINE_WORDS, stall_words
from hwsim.analysis.time_shares import IDLE_CORES, LAUNCHES
from hwsim.analysis.verdict import lost_words
from hwsim.devices import find, load
from hwsim.errors import HwsimError
from hwsim.machines.l2_state import DEFAULT
from hwsim.program.ir import GlobalTile
from hwsim.report.page.dataflow import dataflow_svg
from hwsim.report.page.error_plots import error_parts
from hwsim.report.page.figures import axis, bars, figure
from hwsim.report.page.page import Code, Drawing, Facts, Page, PageSection, Part, Plot, Table, Text
from hwsim.report.page.roofline_plot import roofline_parts
from hwsim.report.page.style import BUSY, IDLE, OTHER, PALETTE
from hwsim.report.page.timeline import MOST_TRACED, critical_parts, timeline_parts
from hwsim.report.page.units import unit_of
from hwsim.report.text.provenance_text import provenance_rows
from hwsim.report.text.run_text import (
    ERROR_NAMES,
    SMALL_SHARE,
    error_notes,
    memory_text,
    tiles_text,
    time_facts,
)
from hwsim.report.text.whatif_text import WORTH, about_mapping, changed_rows, how_text
from hwsim.report.text.words import count, data, duration, percent, plural, value
from hwsim.request.declarations import OPERAND_DISTRIBUTION
from hwsim.result import plain

if TYPE_CHECKING:
    from hwsim.analysis.changed_numbers import ChangedNumbers
    from hwsim.devices.device import Device
    from hwsim.program.ir import Program
    from hwsim.result import Result

#: What a kernel is for.
PREPARES, PRODUCTS, JOINS = "converts, splits, quantises or packs operands", "matrix products", "joins sums"
CLEARS = "fills memory with zeros"
OF_PROGRAM = " The cycles are the program's, not the library's."
#: Causes of a stall that are no waiting: nothing was there to do.
NOTHING_TO_DO = ("done", "empty", IDLE_CORES, LAUNCHES)


def run_page(
    result: Result, progress: Callable[[float], Any] | None = None, *, changed: ChangedNumbers | None = None
) -> Page:
    """The page of a result. progress: called with the share done, as some sections compute. changed: the run with other
    numbers of the device, which the page then shows.
    """
    m, n, k = (count(size) for size in (result.m, result.n, result.k))
    sections = []
    for number, section in enumerate(SECTIONS):
        sections.append(_what_if(result, changed) if section is _what_if else section(result))
        if progress is not None:
            progress((number + 1) / len(SECTIONS))
    time = "" if result.seconds is None else f": {duration(result.seconds)}"
    library = "" if result.gemm.library is None else f" by {result.gemm.library.name}"
    title = f"{result.scheme} {_format(result)}{library} on {result.device}, {m} x {n} x {k}{time}"
    return Page(title, sections, plain(result.to_dict()), lead_of(result))


def lead_of(result: Result) -> list[str]:
    """The verdict in words, and the advice that follows."""
    return [*result.verdict.sentences, *(str(advice) for advice in result.verdict.advice[:1])]


def _format(result: Result) -> str:
    """The operands' format: what the products take where the run names it, else what is in memory."""
    names = [result.options.get(name) for name in ("format", "format_b")]
    shown = [str(name) for name in names if name is not None]
    return " x ".join(shown) or result.gemm.problem.input_format


def _summary(result: Result) -> PageSection:
    m, n, k = (count(size) for size in (result.m, result.n, result.k))
    pairs = [
        ("device", f"{result.device}{'' if result.times.chip is None else f': {result.times.chip.title}'}"),
        ("scheme", result.scheme),
        ("shape", f"C[{m} x {n}] = A[{m} x {k}] B[{k} x {n}]"),
        ("operands", _operands(result)),
        (
            "options",
            ", ".join(
                f"{name} {value(setting)}"
                for name, setting in result.options.items()
                if name != "choice" and setting is not None
            ),
        ),
    ]
    pairs += time_facts(result)
    if result.error is not None:
        against = result.error["baseline"]
        pairs += [
            (
                f"error: {words}",
                f"{result.error[name]:.3e}; a plain fp32 FMA chain: {against[name]:.3e}",
            )
            for name, words in ERROR_NAMES.items()
        ]
    pairs += [(f"evidence: {what}", str(level)) for what, level in result.evidence.items() if level]
    pairs += [(f"warning: {warning['code']}", warning["message"]) for warning in result.warnings]
    return PageSection("Summary", "What was run, and what came out.", [Facts(pairs)])


def _operands(result: Result) -> str:
    if result.c is None:
        return f"none, {result.gemm.problem.a.format} in memory assumed"
    if result.seed is None:
        return "given"
    distribution = result.options.get(OPERAND_DISTRIBUTION, NORMAL)
    return f"random {words_of_draw(distribution, result.gemm.problem.a.format)}, seed {result.seed}"


def _errors(result: Result) -> PageSection:
    error_map = result.error_map
    return PageSection(
        "Error",
        "Each element of C against the exact product: how large the errors are, and where.",
        [*map(Text, error_notes(result)), *([] if error_map is None else error_parts(error_map))],
    )


def _timeline(result: Result) -> PageSection:
    return PageSection(
        "Timeline",
        "What the engines of one core do, instruction by instruction: the first tiles, and the steady state. Drag to "
        "zoom in, double-click to go back.",
        timeline_parts(result),
    )


def _time(result: Result) -> PageSection:
    """The time of all cores, as the verdict divides it."""
    verdict = result.verdict
    shares = [("the matrix units work", verdict.busy or 0.0)]
    shares += [(lost_words(cause), share) for cause, share in verdict.lost.items() if share >= SMALL_SHARE]
    shares = shares[::-1]
    values = [100 * share for _, share in shares]
    trace = bars([name for name, _ in shares], values, [percent(share) for _, share in shares], PALETTE[0], lying=True)
    trace["marker"] = {"color": [PALETTE[0]] * (len(shares) - 1) + [BUSY]}
    look = figure([trace], axis("share of the time of all cores (%)", range=[0, 115]), axis("where the time goes"))
    return PageSection(
        "Time",
        "What the cores' time goes to: the work of the matrix units, and the causes why they do not work.",
        [Plot(look, 110 + 28 * len(shares), "shares of the time by cause")] if verdict.busy is not None else [],
    )


def _stalls(result: Result) -> PageSection:
    """Busy and stalled shares of the engines that did something."""
    of_engines = engine_shares(result.times)
    shares = {
        engine_label(name): {cause: 100 * share for cause, share in of_engines[name].items()}
        for name in result.engines
        if name in of_engines
    }
    causes = sorted(
        {cause for parts in shares.values() for cause in parts if cause != "busy" and cause not in NOTHING_TO_DO},
        key=lambda cause: -sum(parts.get(cause, 0.0) for parts in shares.values()),
    )
    named = [cause for cause in causes if cause not in NOTHING_TO_DO][: len(PALETTE) - 1]
    free = [colour for colour in PALETTE if colour != BUSY]
    colours = {"busy": BUSY} | dict(zip(named, free, strict=False))
    engines = list(reversed(shares))
    traces = [
        _stacked("busy" if cause == "busy" else stall_words(cause), engines, shares, (cause,), colour)
        for cause, colour in colours.items()
    ]
    rest = tuple(cause for cause in causes if cause not in colours)
    traces += [_stacked("other waits", engines, shares, rest, OTHER)] if rest else []
    traces.append(_stacked("nothing to do yet, or any more", engines, shares, NOTHING_TO_DO, IDLE))
    look = figure(traces, axis("share of the time of all cores (%)", range=[0, 100]), axis("engine"))
    look["layout"] |= {"barmode": "stack", "showlegend": True}
    plot = Plot(look, 100 + 30 * len(engines), "shares of the time that each engine is busy or waits, by cause")
    return PageSection(
        "Engines and stalls",
        "How much of the time each engine works, and what it waits for otherwise.",
        [plot] if shares else [],
    )


def engine_label(name: str) -> str:
    """An engine with what it is called."""
    words = ENGINE_WORDS.get(name)
    return name if words is None else f"{words} ({name})"


def _stacked(
    name: str, engines: list[str], shares: Mapping[str, Mapping[str, float]], causes: tuple[str, ...], colour: str
) -> dict[str, Any]:
    values = [sum(shares[engine].get(cause, 0.0) for cause in causes) for engine in engines]
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "x": values,
        "y": engines,
        "marker": {"color": colour},
        "hovertemplate": f"%{{y}}: %{{x:.1f}} % {name}<extra></extra>",
    }


def _phases(result: Result) -> PageSection:
    total = result.cycles or 1
    works = kernel_works(result.times.program)
    rows = [
        (
            phase["name"],
            works.get(phase["name"], ""),
            count(phase["cycles"]),
            duration(phase["seconds"]),
            percent(phase["cycles"] / total),
        )
        for phase in result.phases
    ]
    table = Table(("kernel", "what it does", "cycles", "time", "share of the cycles"), rows, right=(2, 3, 4))
    tiles = [
        (
            kernel["kernel"],
            tiles_text(kernel),
            *(count(kernel[name]) for name in ("cores", "idle_cores", "waves")),
            memory_text(kernel),
        )
        for kernel in result.occupancy
    ]
    parts: list[Part] = [table] if rows else []
    before = sum(phase["cycles"] for phase in result.phases if works.get(phase["name"]) == PREPARES) / total
    if before:
        stored = result.gemm.problem.input_format
        says = f"{percent(before)} of the cycles go to kernels that prepare the operands, {stored} in memory."
        parts.append(Text(says))
    if tiles:
        parts.append(
            Table(("kernel", "tiles", "cores", "idle cores", "waves", "memory of each core"), tiles, right=(2, 3, 4))
        )
    says = "The device kernels, which run one after another."
    says += OF_PROGRAM if result.times.by_library else ""
    return PageSection("Phases", says, parts)


def kernel_works(program: Program | None) -> dict[str, str]:
    """What each kernel of a program is for, by its place: before, with or after the matrix products."""
    if program is None:
        return {}
    products = [any(instr.opcode == "mma" for instr in kernel.instrs()) for kernel in program.kernels]
    works = {}
    for number, kernel in enumerate(program.kernels):
        later = any(products[number + 1 :])
        reads = any(isinstance(tile, GlobalTile) for instr in kernel.instrs() for tile in instr.reads)
        works[kernel.name] = PRODUCTS if products[number] else CLEARS if not reads else PREPARES if later else JOINS
    return works


def _gain_text(advice: Advice) -> str:
    """What a change saves, in a cell."""
    if advice.gain is None:
        return "not known"
    return f"{'at most ' if advice.is_most else ''}{percent(advice.gain)}"


def _what_if(result: Result, changed: ChangedNumbers | None = None) -> PageSection:
    """The numbers that were changed, and the time that each part of the device would save if it took none."""
    timed = result.times.timed
    advised = [(advice.change, _gain_text(advice), advice.option) for advice in result.verdict.advice]
    parts: list[Part] = [Table(("change", "saves", "option to try it"), advised)] if advised else []
    if changed is not None:
        rows = changed_rows(changed, by_library=result.times.by_library)
        asked = Table((how_text(changed), "now", "then", ""), rows, right=(1, 2, 3))
        parts.insert(0, asked)
        parts[1:1] = [Text(f"{words[0].upper()}{words[1:]}.")] if (words := about_mapping(changed)) else []
    if timed is not None and timed.instructions > MOST_TRACED:
        parts.append(Text(f"Left out: the program has {plural(timed.instructions, 'instruction')}; run --what-if."))
    elif timed is not None:
        gains = result.what_if or []
        shown = [gain for gain in reversed(gains) if gain.saved >= WORTH]
        saved = [100 * gain.saved for gain in shown]
        texts = [percent(gain.saved) for gain in shown]
        trace = bars([gain.part for gain in shown], saved, texts, PALETTE[0], lying=True)
        trace["hovertemplate"] = "%{customdata} cycles without %{y}<extra></extra>"
        trace |= {"hoverinfo": "all", "customdata": [count(gain.cycles) for gain in shown]}
        look = figure([trace], axis("saved (% of the cycles)", range=[0, 1.25 * max(saved, default=1)]), axis("part"))
        parts += [Plot(look, 110 + 28 * len(shown), "cycles saved by part")] if shown else []
        rest = [gain.part for gain in gains if gain.saved < WORTH]
        parts += [Text(f"Nothing to gain from: {', '.join(rest)}.")] if rest else []
    return PageSection(
        "What to speed up",
        "Changes and what they would save; then the cycles that are saved if a part of the device took no time, each "
        f"alone.{OF_PROGRAM if result.times.by_library else ''}",
        parts,
    )


def _roofline(result: Result) -> PageSection:
    return PageSection(
        "Roofline",
        "The rate that memory and matrix units allow at this much work per byte, and the one achieved.",
        roofline_parts(result),
    )


def _traffic(result: Result) -> PageSection:
    moved = {name: size for name, size in result.traffic_bytes.items() if size}
    names = list(reversed(moved))
    sizes = [moved[name] / 2**20 for name in names]
    trace = bars(names, sizes, [data(moved[name]) for name in names], PALETTE[0], lying=True)
    most = max(sizes, default=1.0)
    trace |= {"hoverinfo": "all", "hovertemplate": "%{y}: %{customdata} bytes<extra></extra>"}
    trace["customdata"] = [count(moved[name]) for name in names]
    look = figure([trace], axis("moved, all cores (MiB)", range=[0, 1.18 * most]), axis("link or memory"))
    parts: list[Part] = [Plot(look, 110 + 32 * len(names), "bytes moved over each link and shared memory")]
    return PageSection(
        "Traffic",
        "Bytes over each link of the cores (FROM_TO), and those that L2 and HBM served.",
        parts if moved else [],
    )


def _dataflow(result: Result) -> PageSection:
    program, chip = result.times.program, result.times.chip
    parts: list[Part] = []
    if program is not None and chip is not None:
        parts.append(Drawing(dataflow_svg(program, chip, result.traffic_bytes)))
    return PageSection(
        "Dataflow",
        "The program as it moves data: memories as boxes, engines as ovals, transfers as arrows with the bytes of all "
        "cores.",
        parts,
    )


def _critical(result: Result) -> PageSection:
    return PageSection(
        "Critical path",
        "The chain of instructions, each of which the next one waited for, that gives the time of the longest kernel "
        "on the traced core.",
        critical_parts(result),
    )


def _decisions(result: Result) -> PageSection:
    rows = [
        (decision.name, str(decision.value), decision.by, decision.evidence, decision.why)
        for decision in result.gemm.decisions
    ]
    return PageSection(
        "Decisions",
        "What fixed bits and cycles, and who decided it on what evidence.",
        [Table(("what", "value", "decided by", "evidence", "why"), rows)],
    )


def _numbers(result: Result) -> PageSection:
    """The device file's numbers, but for the units and instructions that the program does not use."""
    chip = _device(result)
    if chip is None:
        return PageSection("Numbers", "", [])
    used = _used_instructions(result, chip)
    needed = {chip.matrix_instructions[name].unit for name in used}
    unused = [f"instructions.{name}." for name in chip.matrix_instructions if name not in used]
    unused += [f"dot_units.{name}." for name in chip.dot_units if name not in needed]
    rows = [
        (path, text, unit_of(path), level, source)
        for path, text, level, source in provenance_rows(chip.model_dump(mode="json", by_alias=True), chip.evidence)
        if not path.startswith(tuple(unused))
    ]
    parts: list[Part] = [
        Table(("number", "value [range in sources]", "unit", "evidence", "source"), rows, filter=True, paths=True),
        Table(("short name", "source"), list(chip.citations.items())),
    ]
    return PageSection(
        "Numbers",
        f"Every number of device {chip.name} that this result may rest on. Instructions and dot units that it does not "
        "use are left out.",
        parts,
    )


def _device(result: Result) -> Device | None:
    """The device of the result; None where it came from a file of which only the name is known."""
    if result.times.chip is not None:
        return result.times.chip
    try:
        return load(result.device)
    except HwsimError:
        return None


def _used_instructions(result: Result, chip: Device) -> set[str]:
    """Names, in the device file, of the matrix instructions used; one of another width has the numbers of its kind."""
    units = {result.gemm.unit} if result.times.program is None else {*result.times.program.units, result.gemm.unit}
    used = {(x.unit, x.a, x.b, x.d, x.engine) for unit in units if (x := find(chip, unit)) is not None}
    return {
        name
        for name, instruction in chip.matrix_instructions.items()
        if (instruction.unit, instruction.a, instruction.b, instruction.d, instruction.engine) in used
    }


def _device_option(device: Device) -> str:
    """The option that a record's command needs: the file of a device that no name finds."""
    return "" if device.argument == device.name else f" --device {device.argument}"


def _record(result: Result) -> PageSection:
    operands = "" if result.c is None else " --a A.npy --b B.npy" if result.seed is None else f" --seed {result.seed}"
    distribution = result.options.get(OPERAND_DISTRIBUTION)
    operands += "" if distribution is None else f" --operand-distribution {distribution}"
    options = "" if result.call is None else _device_option(result.call.device)
    options += " --no-exact" if result.c is None else ""
    options += f" --l2 {result.state['l2']}" if result.state is not None and result.state["l2"] != DEFAULT else ""
    pairs = [("hwsim", f"{result.hwsim_version}, kernel {result.kernel}"), ("device file", result.device_sha256)]
    pairs += [("result (SHA-256)", result.result_sha256)] if result.result_sha256 is not None else []
    return PageSection(
        "Record",
        "Everything that fixes bits and cycles. Save it, and this command runs the same GEMM again.",
        [
            Facts(pairs),
            Code(f"hwsim run --gemm gemm.json{options}{operands}"),
            Code(result.gemm.to_json(), "gemm.json"),
        ],
    )


#: The page's sections, in order.
SECTIONS: tuple[Callable[[Result], PageSection], ...] = (
    *(_summary, _errors, _time, _phases, _stalls, _what_if, _timeline, _critical, _roofline, _traffic),
    *(_dataflow, _decisions, _numbers, _record),
)
