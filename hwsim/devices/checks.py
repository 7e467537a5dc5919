"""Cross-references in a device file: every format must exist, and every name must be defined elsewhere in the file.

The check reads the plain tree, so it reports problems even where the file does not validate against the model.
"""

from __future__ import annotations

from collections.abc import Iterator

from hwsim.datafiles.yaml_text import FileProblem, Node, plain
from hwsim.devices.patterns import FREE_FORMATS, FREE_N, Choices, match
from hwsim.errors import nearest
from hwsim.formats import FORMATS, nearest_format

GLOBAL = "GM"  # the end of a link outside the core
LOADED_CLOCKS = ("sustained_clock_mhz", "power_limit")  # measured under the board's power


def check(tree: Node) -> list[FileProblem]:
    """The problems of a device file's cross-references: names that nothing defines."""
    formats = tuple(FORMATS)
    instructions, units, engines, memories = (
        tuple(_block(tree, name)) for name in ("instructions", "dot_units", "engines", "memories")
    )
    native = _block(tree, "native")
    endpoints = (*memories, GLOBAL)
    problems: list[FileProblem] = []

    def known(node: Node | None, path: str, allowed: tuple[str, ...], what: str) -> None:
        if node is not None and isinstance(node.value, str) and node.value not in allowed:
            choice = ", ".join(sorted(allowed)) or "none defined"
            near = nearest_format if allowed == formats else nearest
            problems.append(
                FileProblem(
                    node.mark, path, f"'{node.value}' is not {what}; allowed: {choice}{near(node.value, allowed)}"
                )
            )

    def named(block: Node | None, key: str, path: str, allowed: tuple[str, ...], what: str) -> None:
        """The keys of a mapping of numbers by name."""
        mapping = block.value.get(key) if block is not None and isinstance(block.value, dict) else None
        if mapping is not None and isinstance(mapping.value, dict):
            where = f"{path}.{key}" if path else key
            for name in mapping.value:
                known(Node(mapping.keys[name], name), f"{where}.{name}", allowed, what)

    named(tree, "sustained_clock_mhz", "", ("default", *formats), "a known format, or default")
    for name, entry in _blocks(tree, "instructions"):
        path = f"instructions.{name}"
        for key in ("a", "b", "c", "d", "scale_format"):
            known(entry.get(key), f"{path}.{key}", formats, "a known format")
        known(entry.get("unit"), f"{path}.unit", units, "one of dot_units")
        if engines:
            known(entry.get("engine"), f"{path}.engine", engines, "one of engines")
        for i, place in enumerate(_items(entry.get("memories"))):
            known(place, f"{path}.memories.{i}", memories, "one of memories")
            for j, member in enumerate(_items(place)):
                known(member, f"{path}.memories.{i}.{j}", memories, "one of memories")
        for i, fmt in enumerate(_items(entry.get("formats"))):
            known(fmt, f"{path}.formats.{i}", formats, "a known format")
        named(entry.get("timing"), "operand_bytes_per_cycle", f"{path}.timing", memories, "one of memories")
        known(entry.get("scale_memory"), f"{path}.scale_memory", memories, "one of memories")
        problems.extend(_pattern_problems(name, entry, path))
        problems.extend(_terms_problems(entry, path, _block(tree, "dot_units")))
        problems.extend(_scale_problems(entry, path, _block(tree, "dot_units")))
        problems.extend(_widening_problems(entry, path, _block(tree, "dot_units")))
    problems.extend(_inner_problems(_child(tree, "dot_units")))
    for name, entry in _blocks(tree, "dot_units"):
        for where, unit in ((f"dot_units.{name}", entry), (f"dot_units.{name}.inner", _inner(entry))):
            for key in ("result_format", "operand_format"):
                known(unit.get(key), f"{where}.{key}", formats, "a known format")
    for name, entry in _blocks(tree, "links"):
        known(entry.get("engine"), f"links.{name}.engine", engines, "one of engines")
        known(entry.get("from"), f"links.{name}.from", endpoints, "one of memories")
        known(entry.get("to"), f"links.{name}.to", endpoints, "one of memories")
    energy, area = _child(tree, "energy"), _child(tree, "area")
    named(energy, "mac_pj", "energy", formats, "a known format")
    named(energy, "memory_pj_per_byte", "energy", memories, "one of memories")
    named(area, "mac_mm2", "area", engines, "one of engines")
    named(area, "memory_mm2_per_kib", "area", memories, "one of memories")
    vector = _block(tree, "vector")
    known(vector.get("engine"), "vector.engine", engines, "one of engines")
    known(vector.get("memory"), "vector.memory", memories, "one of memories")
    special = _block(tree, "special")
    known(special.get("engine"), "special.engine", engines, "one of engines")
    known(special.get("memory"), "special.memory", memories, "one of memories")
    for key, target in native.items():
        if _entry(tree, target) is None:
            known(target, f"native.{key}", instructions, "one of instructions")
        if key not in formats:
            problems.append(
                FileProblem(
                    target.mark,
                    f"native.{key}",
                    f"'{key}' is not a known format; allowed: {', '.join(sorted(formats))}"
                    f"{nearest_format(key, formats)}",
                )
            )
    default = _child(tree, "default_format")
    known(default, "default_format", tuple(native) or formats, "one of native" if native else "a known format")
    return problems


def board_problems(base: Node, change: Node) -> list[FileProblem]:
    """A problem where a variant's board has another power than its base's, and all its clocks under load are the
    base's.
    """
    before, after = (_block(tree, "board_power").get("watts") for tree in (base, change))
    changed, inherited = ([name for name in LOADED_CLOCKS if name in tree.value] for tree in (change, base))
    if before is None or after is None or before.value == after.value or changed or not inherited:
        return []
    text = f"got {after.value!r}; {' and '.join(inherited)} of the base are of {before.value!r} W: give them here too"
    return [FileProblem(after.mark, "board_power.watts", f"{text}, or null where they are not known")]


def _entry(tree: Node, target: Node) -> dict[str, Node] | None:
    """The instruction entry that `target` names, either directly or as one instance of a pattern."""
    wanted = target.value
    for name, entry in _blocks(tree, "instructions"):
        if isinstance(wanted, str) and (name == wanted or match(name, _choices(entry), wanted) is not None):
            return entry
    return None


def _choices(entry: dict[str, Node]) -> Choices:
    """The free parameters (N, formats) of an entry in the plain tree; invalid values count as absent."""
    numbers: dict[str, int] = {}
    for key in ("n", "n_last"):
        value = entry[key].value if key in entry else None
        if isinstance(value, int) and value > 0:
            numbers[key] = value
    lists = {
        key: tuple(plain(node))
        for key in ("n_also", "formats")
        if (node := entry.get(key)) is not None and isinstance(node.value, list)
    }
    formats = tuple(item for item in lists.get("formats", ()) if isinstance(item, str))
    return Choices(numbers.get("n", 1), numbers.get("n_last"), lists.get("n_also", ()), formats)


def _pattern_problems(name: str, entry: dict[str, Node], path: str) -> Iterator[FileProblem]:
    """Problems where the free parameters of an entry and its name do not correspond."""
    for key, free in (("n_last", FREE_N), ("formats", FREE_FORMATS)):
        node = entry.get(key)
        node = None if node is not None and node.value == [] else node
        if node is not None and free not in name:
            yield FileProblem(node.mark, f"{path}.{key}", f"the instruction's name has no '{free}' for it to fill")
        elif node is None and free in name and entry:
            mark = next(iter(entry.values())).mark
            yield FileProblem(mark, path, f"'{free}' in the instruction's name needs {key}")
    timing = entry.get("timing")
    times = timing.value if timing is not None and isinstance(timing.value, dict) else {}
    if FREE_N in name and "issue_interval_cycles" in times:
        mark = times["issue_interval_cycles"].mark
        text = "one interval does not hold for every N; give macs_per_cycle"
        yield FileProblem(mark, f"{path}.timing.issue_interval_cycles", text)
    allowed = _choices(entry).formats
    for key in ("a", "b"):
        if allowed and key in entry and entry[key].value not in allowed:
            yield FileProblem(
                entry[key].mark, f"{path}.{key}", f"{entry[key].value!r} is not one of the entry's formats"
            )


def _terms_problems(entry: dict[str, Node], path: str, units: dict[str, Node]) -> Iterator[FileProblem]:
    """A problem where the unit's additions do not divide the instruction's K: it would add beyond its operands."""
    k, unit = entry.get("k"), entry.get("unit")
    node = units.get(unit.value) if unit is not None and isinstance(unit.value, str) else None
    terms = node.value.get("terms") if node is not None and isinstance(node.value, dict) else None
    if k is None or terms is None or type(k.value) is not int or type(terms.value) is not int or terms.value < 1:
        return
    if k.value % terms.value:
        assert unit is not None
        yield FileProblem(
            k.mark, f"{path}.k", f"got {k.value}; must be a multiple of the {terms.value} terms of unit {unit.value}"
        )


def _scale_problems(entry: dict[str, Node], path: str, units: dict[str, Node]) -> Iterator[FileProblem]:
    """A problem where a unit is to scale its accumulator inside its sum, which fused ones alone do."""
    scale, rule, unit = entry.get("scale_input_d"), entry.get("scale_input_d_rule"), entry.get("unit")
    node = units.get(unit.value) if unit is not None and isinstance(unit.value, str) else None
    model = node.value.get("model") if node is not None and isinstance(node.value, dict) else None
    is_exact = rule is None or rule.value == "exact"
    if scale is None or scale.value is None or model is None or not is_exact or model.value == "fused":
        return
    assert unit is not None
    yield FileProblem(
        scale.mark,
        f"{path}.scale_input_d",
        f"unit {unit.value} is {model.value}; scale_input_d_rule exact needs a fused one (RZ, RNE and flush round "
        "the accumulator first, for any)",
    )


def _widening_problems(entry: dict[str, Node], path: str, units: dict[str, Node]) -> Iterator[FileProblem]:
    """A problem for each operand format with values that the unit's operand_format has not."""
    unit = entry.get("unit")
    node = units.get(unit.value) if unit is not None and isinstance(unit.value, str) else None
    wide = node.value.get("operand_format") if node is not None and isinstance(node.value, dict) else None
    holder = FORMATS.get(wide.value) if wide is not None and isinstance(wide.value, str) else None
    if holder is None:
        return
    operands: list[tuple[str, Node]] = [(key, entry[key]) for key in ("a", "b") if key in entry]
    operands += [(f"formats.{i}", fmt) for i, fmt in enumerate(_items(entry.get("formats")))]
    for key, fmt in operands:
        source_format = FORMATS.get(fmt.value) if isinstance(fmt.value, str) else None
        if source_format is not None and not holder.holds(source_format):
            text = f"{source_format.name} has values that the unit's operand_format {holder.name} has not; widen that"
            yield FileProblem(fmt.mark, f"{path}.{key}", text)


def _inner_problems(units: Node | None) -> Iterator[FileProblem]:
    """A problem for each inner unit that does not name its model."""
    for name, unit in units.value.items() if units is not None and isinstance(units.value, dict) else ():
        inner = unit.value.get("inner") if isinstance(unit.value, dict) else None
        if inner is not None and isinstance(inner.value, dict) and "model" not in inner.value:
            yield FileProblem(unit.keys["inner"], f"dot_units.{name}.inner.model", "missing key")


def _items(node: Node | None) -> list[Node]:
    return node.value if node is not None and isinstance(node.value, list) else []


def _child(tree: Node, name: str) -> Node | None:
    return tree.value.get(name) if isinstance(tree.value, dict) else None


def _block(tree: Node, name: str) -> dict[str, Node]:
    node = _child(tree, name)
    return node.value if node is not None and isinstance(node.value, dict) else {}


def _blocks(tree: Node, name: str) -> Iterator[tuple[str, dict[str, Node]]]:
    for key, node in _block(tree, name).items():
        if isinstance(node.value, dict):
            yield key, node.value


def _inner(unit: dict[str, Node]) -> dict[str, Node]:
    node = unit.get("inner")
    return node.value if node is not None and isinstance(node.value, dict) else {}
