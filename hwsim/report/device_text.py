"""A device as text for people: its parts as tables, or every number with where it comes from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from hwsim.devices.device import Device
from hwsim.devices.provenance import LEVELS
from hwsim.report.text import count, data, facts, plural, table


def device_text(device: Device) -> str:
    """The parts of `device`, without sources."""
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
            + f"; default {device.default_format}",
        ),
        *_sliced(device),
        ("evidence", evidence_text(device)),
        ("SHA-256", device.sha256),
    ]
    return "\n".join(
        [*facts(pairs), *_instructions(device), *_units(device), *_memories(device), *_links(device), *_engines(device)]
    )


def _clocks(device: Device) -> str:
    slower = ", ".join(f"{name} {mhz:,g}" for name, mhz in device.sustained_clock_mhz.items())
    return f"{device.clock_mhz:,g} MHz" + (f"; under the power limit (MHz): {slower}" if slower else "")


def _sliced(device: Device) -> Iterator[tuple[str, str]]:
    """Formats whose slices of K are not made of the native instruction."""
    units = device.library.split_k_instructions if device.library is not None else {}
    if units:
        yield "slices of K", ", ".join(f"{name} ({unit})" for name, unit in units.items())


def evidence_text(device: Device) -> str:
    """How many numbers stand on which level of evidence, best first."""
    found = Counter(str(about.evidence) for about in device.evidence.values())
    return (
        ", ".join(f"{found[level]} {level}" for level in LEVELS if found[level])
        + f" (of {plural(len(device.evidence), 'number')})"
    )


def sources_text(device: Device) -> str:
    """Every number: path, value, evidence, source, and the range that sources give; then the citations."""
    rows, tree = [], device.model_dump(mode="json", by_alias=True)
    for path, about in device.evidence.items():
        span = f" [{about.span[0]:g} to {about.span[1]:g}]" if about.span else ""
        note = f"; fitted to {about.fitted_to}" if about.fitted_to else ""
        note += f"; {about.note}" if about.note else ""
        rows.append((path, f"{_value(_at(tree, path))}{span}", str(about.evidence), f"{about.source}{note}"))
    lines = table(rows, ("number", "value [range in sources]", "evidence", "source"), indent="")
    if device.citations:
        lines += ["", "sources", *facts(device.citations.items(), indent="  ")]
    return "\n".join(lines)


def _at(found: Any, path: str) -> Any:
    """The value at a dotted path of nested mappings; keys may hold dots themselves."""
    rest = path
    while rest:
        key = max((key for key in found if rest == key or rest.startswith(f"{key}.")), key=len)
        found, rest = found[key], rest[len(key) + 1 :]
    return found


def _value(item: Any) -> str:
    if isinstance(item, bool) or item is None:
        return {True: "yes", False: "no", None: "none"}[item]
    if isinstance(item, int):
        return count(item)
    if isinstance(item, float):
        return f"{item:,g}" if abs(item) < 1e9 else f"{item:g}"
    return str(item)


def _instructions(device: Device) -> Iterator[str]:
    yield from ("", "matrix instructions")
    rows = []
    for name, x in device.matrix_instructions.items():
        rate = f"{float(x.macs_per_cycle):,g}" if x.timing else "no data"
        rows.append((name, f"{x.m} x {x.n} x {x.k}", f"{x.a} x {x.b} + {x.c} -> {x.d}", x.engine, x.unit, rate))
    yield from table(rows, ("name", "m x n x k", "formats", "engine", "dot unit", "MAC per cycle"), right=(5,))


def _units(device: Device) -> Iterator[str]:
    yield from ("", "dot units")
    rows = []
    for name, unit in device.dot_units.items():
        settings = unit.model_dump(mode="json", exclude={"model", "specials"}, exclude_none=True)
        rows.append((name, unit.model, ", ".join(f"{key} {_value(x)}" for key, x in settings.items())))
    yield from table(rows)


def _memories(device: Device) -> Iterator[str]:
    rows = [(name, data(x.capacity_bytes), "per core", "", "") for name, x in device.memories.items()]
    rows += [
        (
            name,
            data(x.capacity_bytes),
            "shared",
            f"{x.bytes_per_second / 1e9:,g} GB/s",
            f"adds {x.latency_ns:g} ns" if x.latency_ns else "",
        )
        for name, x in (("L2", device.l2), ("HBM", device.hbm))
        if x
    ]
    if rows:
        yield from ("", "memories", *table(rows, right=(1, 3)))


def _links(device: Device) -> Iterator[str]:
    rows = [
        (
            name,
            f"{x.source} -> {x.target}",
            x.engine,
            f"{x.bytes_per_cycle:,g}",
            count(x.overhead_cycles),
            count(x.startup_cycles),
            data(x.in_flight_bytes) if x.in_flight_bytes else "",
            f"x {x.conflict_factor:g}" if x.conflict_factor else "",
        )
        for name, x in device.links.items()
    ]
    if rows:
        head = ["name", "from, to", "engine", "bytes per cycle", "overhead cycles", "start-up cycles"]
        head += ["most in flight", "conflicts"]
        used = [i for i in range(len(head)) if i < 6 or any(row[i] for row in rows)]
        shown = [[row[i] for i in used] for row in rows]
        yield from ("", "links", *table(shown, [head[i] for i in used], right=(3, 4, 5)))


def _engines(device: Device) -> Iterator[str]:
    rows = [
        (name, count(x.queue_depth), f"{x.issue_cycles:g}", count(x.sync_cycles)) for name, x in device.engines.items()
    ]
    if rows:
        yield from (
            "",
            "engines",
            *table(rows, ("name", "queue depth", "issue cycles", "sync cycles"), right=(1, 2, 3)),
        )
