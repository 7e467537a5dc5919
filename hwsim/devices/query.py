"""What consumers ask of a device: the dot unit of an instruction, and how good the numbers are."""

from __future__ import annotations

import dataclasses
import typing
from typing import TYPE_CHECKING, Any

from hwsim.datafiles.provenance import Level
from hwsim.devices.patterns import Choices, match, spell
from hwsim.errors import InputError, UnsupportedError, nearest
from hwsim.numerics import units

if TYPE_CHECKING:
    from hwsim.devices.model import DeviceModel, InstructionModel

UNITS: dict[str, type[Any]] = {unit.model: unit for unit in typing.get_args(units.Unit)}


def instruction(device: DeviceModel, name: str) -> InstructionModel:
    """Return the instruction `name`, N and formats as the name says.

    The name of a pattern (with nN) gives its example. Raises UnsupportedError, which lists those that the device has.
    """
    found = find(device, name)
    if found is None:
        known = list(device.matrix_instructions)
        open_ones = {key: str(choices(device, key)) for key in known}
        near = nearest(name, [*known, *(example(device, key) for key in known)])
        listed = "; ".join(f"{key} ({said})" if said else key for key, said in open_ones.items())
        raise UnsupportedError(f"{device.name} has no instruction '{name}'{near}; it has: {listed}")
    return found


def find(device: DeviceModel, name: str) -> InstructionModel | None:
    """Return the instruction `name` as `instruction` does, or None."""
    known = device._resolved.get(name)
    if known is None:
        key = entry(device, name)
        if key is None:
            return None
        known = device.matrix_instructions[key]
        chosen = match(key, choices(device, key), name)
        if chosen is not None:
            given = {"n": chosen.n, "a": chosen.a, "b": chosen.b}
            closed = {"n_last": None, "n_also": (), "formats": ()}
            known = known.model_copy(update={k: v for k, v in given.items() if v is not None} | closed)
        device._resolved[name] = known
    return known


def entry(device: DeviceModel, name: str) -> str | None:
    """Return the name of the device's entry that has the instruction `name` (itself, or a pattern), or None."""
    if name in device.matrix_instructions:
        return name
    return next((key for key in device.matrix_instructions if match(key, choices(device, key), name)), None)


def choices(device: DeviceModel, key: str) -> Choices:
    """Return what the entry `key` leaves open; its text is empty where it stands for one instruction."""
    model = device.matrix_instructions[key]
    return Choices(model.n, model.n_last, model.n_also, model.formats)


def example(device: DeviceModel, key: str, *, n: int | None = None, a: str | None = None, b: str | None = None) -> str:
    """Return a spelt-out name of the entry `key`: with this N and these formats, or the smallest N and its own."""
    model = device.matrix_instructions[key]
    return spell(key, model.n if n is None else n, a or model.a, b or model.b)


def taken_format(device: DeviceModel, input_format: str) -> str:
    """Return the format that a native GEMM without one computes in: the operands' own, or the device's default."""
    return input_format if input_format in device.native else device.default_format


def dot_spec(device: DeviceModel, name: str) -> units.DotSpec:
    """Return what fixes the bits of the instruction `name`: its dot unit and formats. The same record each time."""
    found = device._specs.get(name)
    if found is None:
        model = instruction(device, name)
        found = units.DotSpec(
            _record(device.dot_units[model.unit]),
            model.a,
            model.b,
            model.c,
            model.d,
            model.scale_format,
            model.scale_block,
        )
        device._specs[name] = found
    return found


def instruction_for(device: DeviceModel, a: str, b: str, wanted: str | None = None) -> str:
    """Name of the instruction for operands of these formats: `wanted`, the device's native one, or its widest.

    For unlike formats the kin of a native one comes first. Raises UnsupportedError when the device has none or
    `wanted` is for other formats, InputError for a pattern.
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
        name = _kin(device, a, b) or _widest(device, a, b)
    if dot_spec(device, name).scale_format is not None:
        raise UnsupportedError(f"instruction {name} needs block scales, which a plan does not have")
    return name


def _kin(device: DeviceModel, a: str, b: str) -> str | None:
    """The instruction that differs from a native one of either format in the formats alone."""
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
        if model.scale_format is None and (is_open or (a, b) == (model.a, model.b)):
            fits.append((model.k, example(device, key, n=model.n_last, a=a, b=b)))
    if not fits:
        known = list(device.native)
        raise UnsupportedError(
            f"device {device.name} has no matrix instruction for {a} x {b}; it has formats {', '.join(known)}"
            f"{nearest(a, known)}"
        )
    return max(fits, key=lambda fit: fit[0])[1]


def specials(model: Any) -> units.Specials:
    """Return a model's `specials` block (a dot unit's, or the vector unit's) as the record."""
    return units.Specials(**model.model_dump())


def weakest(device: DeviceModel, *prefixes: str) -> Level:
    """Return the weakest evidence among the numbers whose dotted path is, or begins with, one of `prefixes`.

    Whole parts count: "dot_units.cube" does not cover "dot_units.cube_tree". No prefix: all numbers.
    Raises KeyError where there is no such number.
    """
    known = device._levels.get(prefixes)
    if known is None:
        found = [
            about.evidence
            for path, about in device.evidence.items()
            if not prefixes or any(path == p or path.startswith(f"{p}.") for p in prefixes)
        ]
        known = device._levels[prefixes] = _weakest(found, prefixes)
    return known


def numerics_evidence(device: DeviceModel, name: str, *, scaled: bool = False) -> Level:
    """Return the weakest evidence that the bits of the instruction `name` rest on.

    That is its unit's and, where the file says so, that it has this unit; scaled: also that of scale-input-d.
    """
    unit, own = instruction(device, name).unit, f"instructions.{entry(device, name)}"
    return weakest(device, f"dot_units.{unit}", f"{own}.unit", *([f"{own}.scale_input_d"] if scaled else []))


def timing_evidence(device: DeviceModel, name: str) -> Level:
    """Return the weakest evidence that times rest on: all but what fixes bits, and the other instructions."""
    instruction(device, name)
    own = entry(device, name)
    others = tuple(f"instructions.{other}." for other in device.matrix_instructions if other != own)
    bits = (f"instructions.{own}.unit", f"instructions.{own}.scale_input_d")
    aside = ("dot_units.", "library.", "vector.specials.", *bits, *others)
    return _weakest([about.evidence for path, about in device.evidence.items() if not path.startswith(aside)], (name,))


def _weakest(found: list[Level], asked: tuple[str, ...]) -> Level:
    if not found:
        raise KeyError(f"no number under {', '.join(asked)}")
    return max(found, key=list(Level).index)


def _record(model: Any) -> Any:
    """The record of hwsim.numerics.units with the same fields as a unit's model."""
    cls = UNITS[model.model]
    given = {field.name: getattr(model, field.name) for field in dataclasses.fields(cls)}
    if "specials" in given:
        given["specials"] = specials(given["specials"])
    if "inner" in given:
        given["inner"] = _record(given["inner"])
    return cls(**given)
