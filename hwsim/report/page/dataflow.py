"""A program drawn as the dataflow it is: memories, the engines that compute between them, and what is moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from hwsim.program.ir import GlobalTile, Instr, Loop, StreamItem
from hwsim.report.text.words import data

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.program.ir import Program

GLOBAL, FAR = "GM", "HBM"
COLUMN, ROW, BOX, MARGIN = 250, 120, (104, 46), 30
LETTER, LINE = 7.4, 17  # of labels, in units of the drawing
NO_ARITHMETIC = ("copy", "fill", "sync")


@dataclass(frozen=True, slots=True)
class Flow:
    """An arrow: from a node to a node, and what it says ("" for operands of an engine)."""

    source: str
    target: str
    label: str = ""


def dataflow_svg(program: Program, device: Device, traffic_bytes: Mapping[str, int]) -> str:
    """The drawing as SVG. traffic_bytes: by link and shared memory, as a result has it."""
    flows = [
        Flow(link.source, link.target, f"{name}: {data(traffic_bytes[name])}")
        for name, link in device.links.items()
        if traffic_bytes.get(name)
    ]
    flows += [
        Flow(*nodes, f"{name}: {data(traffic_bytes[name])}")
        for name, nodes in (("HBM read", (FAR, GLOBAL)), ("HBM write", (GLOBAL, FAR)))
        if traffic_bytes.get(name)
    ]
    engines, operands = _computing(program)
    flows += operands
    columns = _columns(flows)
    places = {
        node: (MARGIN + number * COLUMN, MARGIN + ROW // 2 + (2 * row - len(column) + 1) * ROW / 2)
        for number, column in enumerate(columns)
        for row, node in enumerate(column)
    }
    lift = MARGIN + ROW / 2 - min((y for _, y in places.values()), default=0.0)
    places = {node: (x, y + lift) for node, (x, y) in places.items()}
    labels: list[tuple[float, float, float]] = []
    arrows = [_arrow(flow, places, labels) for flow in flows]
    capacity = {name: data(memory.capacity_bytes) for name, memory in device.memories.items()}
    capacity[GLOBAL] = "global, L2" if device.l2 is not None else "global"
    boxes = [_box(node, *place, capacity.get(node, ""), node in engines) for node, place in places.items()]
    width = 2 * MARGIN + max((x for x, _ in places.values()), default=0.0) + BOX[0]
    deepest = max([y for _, y in places.values()] + [y for _, y, _ in labels], default=0.0)
    height = deepest + BOX[1] / 2 + MARGIN
    mark = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="currentColor"/></marker></defs>'
    )
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" role="img" '
        'aria-label="memories and engines, and the bytes moved between them" font-size="13">'
        + "".join([mark, *(line for line, _ in arrows), *boxes, *(text for _, text in arrows)])
        + "</svg>"
    )


def _computing(program: Program) -> tuple[set[str], list[Flow]]:
    """The engines that compute, and their operands' and results' ways."""
    flows: dict[Flow, None] = {}
    engines = set()
    for kernel in program.kernels:
        memories = {buffer.name: buffer.memory for buffer in kernel.buffers}
        for instr in (
            instruction
            for group in kernel.groups
            for stream in group.streams
            for instruction in _instructions(stream.body)
        ):
            if instr.opcode in NO_ARITHMETIC:
                continue
            engines.add(instr.engine)
            at = [
                {GLOBAL if isinstance(tile, GlobalTile) else memories[tile.buffer] for tile in tiles}
                for tiles in (instr.reads, instr.writes)
            ]
            flows |= dict.fromkeys(Flow(memory, instr.engine) for memory in sorted(at[0]))
            flows |= dict.fromkeys(Flow(instr.engine, memory) for memory in sorted(at[1]))
    return engines, list(flows)


def _instructions(body: Sequence[StreamItem]) -> Iterator[Instr]:
    for node in body:
        if isinstance(node, Loop):
            yield from _instructions(node.body)
        elif isinstance(node, Instr):
            yield node


def _columns(flows: Sequence[Flow]) -> list[list[str]]:
    """Nodes by their distance from the memory that is farthest from the engines."""
    nodes = list(dict.fromkeys(node for flow in flows for node in (flow.source, flow.target)))
    columns: list[list[str]] = []
    reached: set[str] = set()
    front = [next((node for node in (FAR, GLOBAL) if node in nodes), nodes[0])] if nodes else []
    while front:
        columns.append(front)
        reached |= set(front)
        beyond = [flow.target for source in front for flow in flows if flow.source == source]
        front = [node for node in dict.fromkeys(beyond) if node not in reached]
    rest = [node for node in nodes if node not in reached]
    return [*columns, rest] if rest else columns


def _arrow(
    flow: Flow, places: Mapping[str, tuple[float, float]], labels: list[tuple[float, float, float]]
) -> tuple[str, str]:
    """Line and label of an arrow: above the direct way to the right, below it to the left."""
    (x, y), (to_x, to_y) = (places[node] for node in (flow.source, flow.target))
    half = BOX[0] / 2, BOX[1] / 2
    columns = round((to_x - x) / COLUMN)
    if columns > 0:
        first, last = (x + BOX[0], y - half[1] / 3), (to_x, to_y - half[1] / 3)
        bend = -14 if columns == 1 else -62
    elif columns < 0:
        first, last = (x + half[0] * 0.8, y + half[1]), (to_x + half[0] * 1.2, to_y + half[1])
        bend = 52 + 26 * -columns
    else:
        down = half[1] if to_y > y else -half[1]
        first, last = (x + half[0] * 1.5, y + down), (to_x + half[0] * 1.5, to_y - down)
        bend = 0
    reach = (last[0] - first[0]) / 3
    control = [(first[0] + reach, first[1] + bend), (last[0] - reach, last[1] + bend)]
    middle = [(first[i] + 3 * control[0][i] + 3 * control[1][i] + last[i]) / 8 for i in range(2)]
    path = "M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}".format(*first, *control[0], *control[1], *last)
    style = "" if flow.label else ' stroke-dasharray="5 4"'
    line = f'<path d="{path}" fill="none" stroke="currentColor" stroke-width="1.6" marker-end="url(#tip)"{style}/>'
    if not flow.label:
        labels.append((middle[0], middle[1], 0.0))
        return line, ""
    width = LETTER * len(flow.label)
    left = max(middle[0], width / 2 + 4)
    height = middle[1]
    while any(abs(left - other) < (width + wide) / 2 and abs(height - at) < LINE for other, at, wide in labels):
        height += 4
    labels.append((left, height, width))
    text = (  # on a ground of its own: lines that pass beneath do not cross letters
        f'<rect x="{left - width / 2:.1f}" y="{height - LINE / 2:.1f}" width="{width:.1f}" height="{LINE}" '
        'style="fill:var(--back)"/>'
        f'<text x="{left:.1f}" y="{height:.1f}" text-anchor="middle" dominant-baseline="middle" fill="currentColor">'
        f"{escape(flow.label)}</text>"
    )
    return line, text


def _box(node: str, x: float, y: float, below: str, is_engine: bool) -> str:
    width, height = BOX
    round_by = height / 2 if is_engine else 5
    colour = "#009E73" if is_engine else "#0072B2"
    shape = (
        f'<rect x="{x:.1f}" y="{y - height / 2:.1f}" width="{width}" height="{height}" rx="{round_by}" '
        f'style="fill:var(--panel)" stroke="{colour}" stroke-width="2.4"/>'
    )
    lines = [(node, -8 if below else 0, 15), *([(below, 11, 11.5)] if below else [])]
    return shape + "".join(
        f'<text x="{x + width / 2:.1f}" y="{y + shift:.1f}" text-anchor="middle" dominant-baseline="middle" '
        f'fill="currentColor" font-size="{size}">{escape(text)}</text>'
        for text, shift, size in lines
    )
