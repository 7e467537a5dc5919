"""Reports on a device: its parts as tables, or every number with its source."""

from __future__ import annotations

from collections.abc import Iterator

from hwsim.devices.device import Device
from hwsim.devices.query import native_format
from hwsim.libraries.model import library_of, observed
from hwsim.report.text import provenance_text
from hwsim.report.text.words import count, data, facts, table


def device_text(device: Device) -> str:
    """The parts of `device` as tables, without sources."""
    pairs = [
        ("name", device.name),
        ("title", device.title),
        ("family", device.family),
        ("cores", count(device.cores)),
        ("clock", _clocks(device)),
        *([("launch", f"{device.launch_overhead_us:g} us a kernel")] if device.launch_overhead_us is not None else []),
        *([("core start", f"{device.core_start_us:g} us a kernel")] if device.core_start_us is not None else []),
        (
            "formats",
            ", ".join(f"{name} ({unit})" for name, unit in device.native.items())
            + f"; a run without format takes {native_format(device, 'fp32')} for float32 operands, "
            + f"the operands' own where it is listed, and {device.default_format} for the rest",
        ),
        *_library(device),
        *_sliced(device),
        ("evidence", evidence_text(device)),
        ("SHA-256", device.sha256),
    ]
    return "\n".join(
        [*facts(pairs), *_instructions(device), *_units(device), *_memories(device), *_links(device), *_engines(device)]
    )


def _clocks(device: Device) -> str:
    stages = [("under load", device.sustained_clock_mhz)]
    if device.power_limit is not None:
        stages += [(f"from {stage.after_ms:g} ms on", stage.clock_mhz) for stage in device.power_limit.stages]
    parts = [f"{device.clock_mhz:,g} MHz"]
    parts += [
        f"{when} (MHz): {', '.join(f'{name} {mhz:,g}' for name, mhz in clocks.items())}"
        for when, clocks in stages
        if clocks
    ]
    if device.most_watts is not None:
        parts.append(f"board of {device.most_watts:,g} W")
    return "; ".join(parts)


def _library(device: Device) -> Iterator[tuple[str, str]]:
    """The lines on the library whose kernels are the candidate tiles."""
    library = library_of(device)
    if library is not None and device.library is not None:
        seen = device.library.observations
        yield "library", f"{library.name}, {library.title}" + (f"; as seen on {seen}" if seen else "")


def _sliced(device: Device) -> Iterator[tuple[str, str]]:
    """The lines on formats whose split-K kernels do not use the native instruction."""
    seen = observed(device)
    units = {} if seen is None else seen.split_k_instructions
    if units:
        yield "slices of K", ", ".join(f"{name} ({unit})" for name, unit in units.items())


def evidence_text(device: Device) -> str:
    """The number of numbers at each evidence level, best first."""
    return provenance_text.evidence_text(device.evidence)


def sources_text(device: Device) -> str:
    """Every number with its path, value, evidence, source, and the range that sources give; then the citations."""
    return provenance_text.provenance_table(
        device.model_dump(mode="json", by_alias=True), device.evidence, device.citations
    )


def _instructions(device: Device) -> Iterator[str]:
    yield from ("", "matrix instructions")
    rows = []
    for name, instruction in device.matrix_instructions.items():
        rate = f"{float(instruction.macs_per_cycle):,g}" if instruction.timing else "no data"
        rows.append(
            (
                name,
                f"{instruction.m} x {instruction.n} x {instruction.k}",
                f"{instruction.a} x {instruction.b} + {instruction.c} -> {instruction.d}",
                instruction.engine,
                instruction.unit,
                rate,
            )
        )
    yield from table(rows, ("name", "m x n x k", "formats", "engine", "dot unit", "MAC per cycle"), right=(5,))


def _units(device: Device) -> Iterator[str]:
    yield from ("", "dot units")
    rows = []
    for name, unit in device.model_dump(mode="json", include={"dot_units"}, exclude_none=True)["dot_units"].items():
        settings = {key: value for key, value in unit.items() if key not in ("model", "specials")}
        rows.append(
            (
                name,
                unit["model"],
                ", ".join(f"{key} {provenance_text.plain_value(setting)}" for key, setting in settings.items()),
            )
        )
    yield from table(rows)


def _memories(device: Device) -> Iterator[str]:
    rows = [(name, data(memory.capacity_bytes), "per core", "", "") for name, memory in device.memories.items()]
    rows += [
        (
            name,
            data(memory.capacity_bytes),
            "shared",
            f"{memory.bytes_per_second / 1e9:,g} GB/s",
            f"adds {memory.latency_ns:g} ns" if memory.latency_ns else "",
        )
        for name, memory in (("L2", device.l2), ("HBM", device.hbm))
        if memory
    ]
    if rows:
        yield from ("", "memories", *table(rows, right=(1, 3)))


def _links(device: Device) -> Iterator[str]:
    rows = [
        (
            name,
            f"{link.source} -> {link.target}",
            link.engine,
            f"{link.bytes_per_cycle:,g}",
            count(link.overhead_cycles),
            count(link.startup_cycles),
            data(link.in_flight_bytes) if link.in_flight_bytes else "",
            f"x {link.conflict_factor:g}" if link.conflict_factor else "",
        )
        for name, link in device.links.items()
    ]
    if rows:
        head = ["name", "from, to", "engine", "bytes per cycle", "overhead cycles", "start-up cycles"]
        head += ["most in flight", "conflicts"]
        used = [i for i in range(len(head)) if i < 6 or any(row[i] for row in rows)]
        shown = [[row[i] for i in used] for row in rows]
        yield from ("", "links", *table(shown, [head[i] for i in used], right=(3, 4, 5)))


def _engines(device: Device) -> Iterator[str]:
    rows = [
        (name, count(engine.queue_depth), f"{engine.issue_cycles:g}", count(engine.sync_cycles))
        for name, engine in device.engines.items()
    ]
    if rows:
        yield from (
            "",
            "engines",
            *table(rows, ("name", "queue depth", "issue cycles", "sync cycles"), right=(1, 2, 3)),
        )
