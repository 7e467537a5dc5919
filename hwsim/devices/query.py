"""Queries on a device: instructions by name or format, their dot units, and the evidence for the numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwsim.datafiles.provenance import Level
from hwsim.devices.model.memories import PE
from hwsim.devices.patterns import Choices, match, spell
from hwsim.errors import InputError, UnsupportedError, closest, nearest
from hwsim.formats import format_of
from hwsim.numerics import units

if TYPE_CHECKING:
    from hwsim.devices.model import DeviceModel, InstructionModel

MOST_LISTED = 6  # instructions in an error


def instruction(device: DeviceModel, name: str) -> InstructionModel:
    """The instruction called `name`, with N and formats as in the name.

    The name of a pattern (with nN) gives its example. Raises UnsupportedError, which lists those that are meant.
    """
    model = find(device, name)
    if model is None:
        raise UnsupportedError(_no_instruction(device, name))
    return model


def _no_instruction(device: DeviceModel, name: str) -> str:
    """The error for a name that no instruction has: it lists all of a few, or those that the name may mean."""
    said, models = f"{device.name} has no instruction '{name}'", device.matrix_instructions
    open_parts = {key: f" ({text})" if (text := str(choices(device, key))) else "" for key in models}
    spelled = {key: key + text for key, text in open_parts.items()}
    keys = {key: key for key in models} | {example(device, key): key for key in models}
    close = closest(name, keys)
    if len(models) <= MOST_LISTED:
        near = f"; did you mean '{close}'?" if close else ""
        return f"{said}{near}; it has: {'; '.join(spelled.values())}"
    near = f"; did you mean '{close}'{open_parts[keys[close]]}?" if close else ""
    meant = [key for key, model in models.items() if name in (model.a, model.b, *model.formats) or name in key]
    listed = f"; of {name} it has: {'; '.join(spelled[key] for key in meant[:MOST_LISTED])}" if meant else near
    more = f", and {len(meant) - MOST_LISTED} more" if len(meant) > MOST_LISTED else ""
    return f"{said}{listed}{more}; all {len(models)}: hwsim devices show {device.argument}"


def find(device: DeviceModel, name: str) -> InstructionModel | None:
    """The instruction called `name` (see `instruction`), or None."""
    model = device._resolved.get(name)
    if model is None:
        key = entry(device, name)
        if key is None:
            return None
        model = device.matrix_instructions[key]
        chosen = match(key, choices(device, key), name)
        if chosen is not None:
            values = {"n": chosen.n, "a": chosen.a, "b": chosen.b}
            closed = {"n_last": None, "n_also": (), "formats": ()}
            model = model.model_copy(update={k: v for k, v in values.items() if v is not None} | closed)
        device._resolved[name] = model
    return model


def is_of_array(model: InstructionModel) -> bool:
    """Whether a systolic array executes an instruction: one of its operands stays in the PEs."""
    return any(model.places(index) == (PE,) for index in range(3))


def follow_from_array(device: DeviceModel) -> tuple[str, ...]:
    """Paths of numbers that follow from a systolic array's rows and columns, and are not free in its design.

    They are the times of its instructions (an element enters each cycle; the skew is R + C - 2), and the links to and
    from its PEs, which move a row a cycle.
    """
    instructions = (name for name, model in device.matrix_instructions.items() if is_of_array(model))
    links = (name for name, link in device.links.items() if PE in (link.source, link.target))
    return (*(f"instructions.{name}.timing" for name in instructions), *(f"links.{name}" for name in links))


def entry(device: DeviceModel, name: str) -> str | None:
    """The key of the device's entry that describes the instruction `name` (itself, or a pattern), or None."""
    if name in device.matrix_instructions:
        return name
    return next((key for key in device.matrix_instructions if match(key, choices(device, key), name)), None)


def choices(device: DeviceModel, key: str) -> Choices:
    """The free parameters of the entry `key`; empty as text where it describes one instruction."""
    model = device.matrix_instructions[key]
    return Choices(model.n, model.n_last, model.n_also, model.formats)


def example(device: DeviceModel, key: str, *, n: int | None = None, a: str | None = None, b: str | None = None) -> str:
    """The full name of one instruction of the entry `key`: with this N and these formats, or the smallest N and the
    entry's own.
    """
    model = device.matrix_instructions[key]
    return spell(key, model.n if n is None else n, a or model.a, b or model.b)


def native_format(device: DeviceModel, input_format: str) -> str:
    """The format in which a native GEMM without `format` computes: the operands' own, or the device's default."""
    return input_format if input_format in device.native else device.default_format


def native_meant(device: DeviceModel) -> dict[str, str]:
    """{format: instruction} that a device file's `native` may say: of two operands of one format, the widest."""
    formats = sorted({fmt for model in device.matrix_instructions.values() for fmt in (model.a, *model.formats)})
    meant = {}
    for fmt in formats:
        try:
            meant[fmt] = _widest(device, fmt, fmt)
        except UnsupportedError:  # of two formats, sparse, or with block scales alone
            continue
    return meant


def without_native(device: DeviceModel) -> str:
    """What a device without `native` lacks, and the line to add to its file; "" where nothing is to be added."""
    meant = {} if device.native else native_meant(device)
    pairs = ", ".join(f"{fmt}: {name}" for fmt, name in meant.items())
    return f"no instruction is native, so no format can be asked for; add native: {{{pairs}}}" if pairs else ""


def dot_spec(device: DeviceModel, name: str) -> units.DotSpec:
    """The dot unit and formats of the instruction `name`, which fix its bits. Repeated calls return the same object."""
    spec = device._specs.get(name)
    if spec is None:
        model = instruction(device, name)
        unit = device.dot_units[model.unit]
        spec = units.DotSpec(
            unit=unit if model.sparsity is None else units.of_sparse(unit),
            a=model.a,
            b=model.b,
            c=model.c,
            d=model.d,
            scale_format=model.scale_format,
            scale_block=model.scale_block,
        )
        device._specs[name] = spec
    return spec


def instruction_for(device: DeviceModel, a: str, b: str, wanted: str | None = None) -> str:
    """The name of the instruction for operands of these formats: `wanted`, the device's native one, or its widest.

    For two different formats, a variant of a native instruction is preferred. Raises UnsupportedError when the device
    has none or `wanted` is for other formats, InputError for a pattern.
    """
    if wanted is not None:
        spec = dot_spec(device, wanted)
        model = find(device, wanted)
        assert model is not None
        if model.n_last is not None or model.formats:
            raise InputError(
                f"instruction {wanted} stands for several; name one, for example {example(device, wanted)}"
            )
        if (spec.a, spec.b) != (a, b):
            raise UnsupportedError(f"instruction {wanted} multiplies {spec.a} by {spec.b}; the plan needs {a} by {b}")
        name = wanted
    elif a == b and a in device.native:
        name = device.native[a]
    else:
        name = _native_variant(device, a, b) or _widest(device, a, b)
    if wanted is None and dot_spec(device, name).scale_format is not None:
        raise UnsupportedError(f"instruction {name} needs block scales, which a plan does not have")
    return name


def sparse_instruction(device: DeviceModel, a: str, b: str, sparsity: str) -> str:
    """The name of the device's instruction for a sparse A and a B of these formats: of the largest blocks those with
    the widest result, of these the longest.

    Raises UnsupportedError where it has none.
    """
    fitting = [
        (model.m * (model.n_last or model.n), format_of(model.d).bits, model.k, key)
        for key, model in device.matrix_instructions.items()
        if model.sparsity == sparsity and ((a, b) == (model.a, model.b) or {a, b} <= set(model.formats))
    ]
    if not fitting:
        formats = {model.a for model in device.matrix_instructions.values() if model.sparsity == sparsity}
        raise UnsupportedError(
            f"device {device.name} has no instruction for {sparsity} sparsity of {a} x {b}; it has "
            f"{', '.join(sorted(formats)) or 'no such instruction'}"
        )
    key = max(fitting)[-1]
    return example(device, key, n=device.matrix_instructions[key].n_last, a=a, b=b)


def narrow_instruction(device: DeviceModel, format: str) -> str:
    """The instruction of the native one's sizes for a format whose accumulator has that format too.

    Raises UnsupportedError where the device has none.
    """
    native = find(device, device.native.get(format, ""))
    for key, model in device.matrix_instructions.items():
        if native is None or {model.a, model.b, model.c, model.d} != {format}:
            continue
        if (model.engine, model.m, model.k, model.sparsity) == (native.engine, native.m, native.k, native.sparsity):
            return example(device, key, n=native.n)
    raise UnsupportedError(f"device {device.name} has no instruction that adds products of {format} in {format}")


def instruction_taking(device: DeviceModel, a: str, b: str, wanted: str | None = None) -> str:
    """As `instruction_for`; `wanted` may also be an instruction for wider floats, which hold these exactly."""
    if wanted is not None:
        spec = dot_spec(device, wanted)
        if format_of(spec.a).holds(format_of(a)) and format_of(spec.b).holds(format_of(b)):
            a, b = spec.a, spec.b
    return instruction_for(device, a, b, wanted)


def _native_variant(device: DeviceModel, a: str, b: str) -> str | None:
    """The variant of the native instruction of either format that differs from it only in operand formats."""
    for fmt in (a, b):
        name = device.native.get(fmt)
        key = None if name is None else entry(device, name)
        if name is None or key is None or not {a, b} <= set(device.matrix_instructions[key].formats):
            continue
        model = find(device, name)
        assert model is not None
        return example(device, key, n=model.n, a=a, b=b)
    return None


def _widest(device: DeviceModel, a: str, b: str) -> str:
    fits: list[tuple[int, str]] = []
    for key, model in device.matrix_instructions.items():
        is_open = a in model.formats and b in model.formats
        if model.scale_format is None and model.sparsity is None and (is_open or (a, b) == (model.a, model.b)):
            fits.append((model.k, example(device, key, n=model.n_last, a=a, b=b)))
    if not fits:
        formats = list(device.native)
        raise UnsupportedError(
            f"device {device.name} has no matrix instruction for {a} x {b}; it has formats {', '.join(formats)}"
            f"{nearest(a, formats)}"
        )
    return max(fits, key=lambda fit: fit[0])[1]


def weakest(device: DeviceModel, *prefixes: str) -> Level:
    """The weakest evidence level of the numbers whose dotted path is, or starts with, one of `prefixes`.

    Whole parts count: "dot_units.cube" does not cover "dot_units.cube_tree". No prefix: all numbers.
    Raises KeyError where there is no such number.
    """
    level = device._levels.get(prefixes)
    if level is None:
        levels = [
            about.evidence
            for path, about in device.evidence.items()
            if not prefixes or any(path == p or path.startswith(f"{p}.") for p in prefixes)
        ]
        level = device._levels[prefixes] = _weakest(levels, prefixes)
    return level


def numerics_evidence(device: DeviceModel, name: str, *, scaled: bool = False) -> Level:
    """The weakest evidence level behind the bits of the instruction `name`.

    It is of the unit and, where the file says so, of the claim that it has this unit; scaled: also of scale-input-d.
    """
    unit, path = instruction(device, name).unit, f"instructions.{entry(device, name)}"
    return weakest(device, f"dot_units.{unit}", f"{path}.unit", *([f"{path}.scale_input_d"] if scaled else []))


def timing_evidence(device: DeviceModel, name: str) -> Level:
    """The weakest evidence level behind the instruction's times: all numbers except arithmetic, costs and
    other instructions.
    """
    instruction(device, name)
    entry_name = entry(device, name)
    key = ("times", str(entry_name))  # no number of a device file stands below "times"
    level = device._levels.get(key)
    if level is None:
        others = tuple(f"instructions.{other}." for other in device.matrix_instructions if other != entry_name)
        bits = (f"instructions.{entry_name}.unit", f"instructions.{entry_name}.scale_input_d")
        aside = ("dot_units.", "library.", "vector.specials.", "energy.", "area.", *bits, *others)
        levels = [about.evidence for path, about in device.evidence.items() if not path.startswith(aside)]
        level = device._levels[key] = _weakest(levels, (name,))
    return level


def _weakest(levels: list[Level], prefixes: tuple[str, ...]) -> Level:
    if not levels:
        raise KeyError(f"no number under {', '.join(prefixes)}")
    return max(levels, key=list(Level).index)
