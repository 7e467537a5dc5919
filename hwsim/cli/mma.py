"""`hwsim mma`: one matrix instruction on arrays from files, or one of its dot products on operands from the command
line.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.cli.explain import add_operands, one_element
from hwsim.cli.operands import FORMS, is_file, read_array
from hwsim.devices import dot_spec, instruction, load, numerics_evidence
from hwsim.errors import InputError
from hwsim.formats import array_dtype, code_dtype, codes_of, format_of
from hwsim.host.files import check_writable, write_whole
from hwsim.report.explain import number
from hwsim.report.text.words import plural, table

if TYPE_CHECKING:
    from hwsim.devices.device import Device

SHOWN = 8  # results of an array that the text shows
SPELT = 1 << 16  # results of an array that --json spells out
FILES = ("a", "b", "c", "scale_a", "scale_b")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("device", metavar="DEVICE", help="device name or YAML file")
    parser.add_argument("instruction", metavar="INSTRUCTION", help="instruction; see hwsim devices show")
    add_operands(
        parser,
        "A.npy (..., M, K), values of the format or unsigned codes; or, for one dot product: ",
        "B.npy (..., K, N); or ",
    )
    parser.add_argument(
        "--out", type=Path, metavar="D.npy", help="write D; the file appears whole or not at all (arrays only)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


def execute(arguments: argparse.Namespace) -> int:
    """Compute, write, print."""
    if arguments.a is None or arguments.b is None:
        raise InputError(f"--a and --b are needed: .npy files, or for one dot product {FORMS}")
    texts = {name: getattr(arguments, name) for name in FILES if getattr(arguments, name) is not None}
    files = {name: is_file(text) for name, text in texts.items()}
    if len(set(files.values())) > 1:
        named = ", ".join(f"--{name.replace('_', '-')}" for name, is_one in files.items() if is_one)
        raise InputError(f"{named}: .npy files and inline values do not mix; give all operands in one way")
    device = load(arguments.device)
    return _arrays(arguments, device) if files["a"] else _one_dot(arguments, device)


def _one_dot(arguments: argparse.Namespace, device: Device) -> int:
    if arguments.out is not None:
        raise InputError("--out is for arrays; the result of one dot product is printed")
    spec = dot_spec(device, arguments.instruction)
    operands = one_element(arguments, device)
    notes = operands.pop("notes")
    formats = {"a": spec.a, "b": spec.b, "c": spec.c, "scale_a": spec.scale_format, "scale_b": spec.scale_format}
    arrays = {
        name: np.array(codes, code_dtype(format_of(str(formats[name]))))
        for name, codes in operands.items()
        if name in formats
    }
    d = device.dot(arguments.instruction, **arrays, scale_d=operands["scale_d"])
    result = number(spec.d, int(d))
    if arguments.json:
        print(
            json.dumps(_record(device, arguments, spec) | {"notes": notes, "k": len(operands["a"]), "result": result})
        )
        return 0
    for note in notes:
        print(f"hwsim: note: {note}", file=sys.stderr)
    value = result["hex"] if result["hex"] == result["decimal"] else f"{result['hex']} = {result['decimal']}"
    print(f"{result['code']} = {value.replace('= ~', '~ ')}")
    level = numerics_evidence(device, arguments.instruction, scaled=bool(operands["scale_d"]))
    print(f"{device.name}, {arguments.instruction}, D in {spec.d}; evidence: {level}; hwsim explain shows the stages")
    return 0


def _arrays(arguments: argparse.Namespace, device: Device) -> int:
    name = arguments.instruction
    model, spec = instruction(device, name), dot_spec(device, name)
    if arguments.out is not None:
        check_writable(arguments.out)
    formats = {"a": spec.a, "b": spec.b, "c": spec.c, "scale_a": spec.scale_format, "scale_b": spec.scale_format}
    arrays: dict[str, NDArray[Any]] = {}
    for operand, fmt in formats.items():
        text = getattr(arguments, operand)
        if text is not None:
            if fmt is None:
                raise InputError(f"{name} takes no block scales")
            arrays[operand] = read_array(f"--{operand.replace('_', '-')}", Path(text), fmt)
    if "c" not in arrays:
        c_format = format_of(spec.c)
        as_codes = arrays["a"].dtype.kind == "u" and arrays["a"].dtype != array_dtype(format_of(spec.a))
        arrays["c"] = np.zeros((model.m, model.n), code_dtype(c_format) if as_codes else array_dtype(c_format))
    d = device.mma(name, **arrays, scale_d=arguments.scale_d or 0)
    codes = np.ascontiguousarray(codes_of(d, format_of(spec.d)))
    if arguments.out is not None:
        write_whole(arguments.out, lambda file: np.save(file, d, allow_pickle=False))
    if arguments.json:
        digest = hashlib.sha256(codes.astype(codes.dtype.newbyteorder("<")).tobytes()).hexdigest()
        width = 2 * codes.dtype.itemsize
        spelt = _spelt(codes, width) if codes.size <= SPELT else None
        print(
            json.dumps(
                _record(device, arguments, spec)
                | {"shape": list(d.shape), "dtype": str(d.dtype), "codes": spelt, "result_sha256": digest}
            )
        )
        return 0
    _show(codes, spec.d)
    if arguments.out is not None:
        print(f"hwsim: wrote {arguments.out}: D, {' x '.join(map(str, d.shape))} {d.dtype}", file=sys.stderr)
    return 0


def _record(device: Device, arguments: argparse.Namespace, spec: Any) -> dict[str, Any]:
    return {
        "schema": "hwsim.mma/1",
        "device": device.name,
        "device_sha256": device.sha256,
        "instruction": arguments.instruction,
        "evidence": str(numerics_evidence(device, arguments.instruction, scaled=bool(arguments.scale_d))),
        "formats": {"a": spec.a, "b": spec.b, "c": spec.c, "d": spec.d, "scale": spec.scale_format},
        "scale_d": arguments.scale_d or 0,
    }


def _spelt(codes: NDArray[Any], width: int) -> Any:
    """Nested lists of hexadecimal codes."""
    if codes.ndim == 0:
        return f"0x{int(codes):0{width}x}"
    return [_spelt(part, width) for part in codes]


def _show(codes: NDArray[Any], fmt: str) -> None:
    print(f"D, {' x '.join(map(str, codes.shape))} of {fmt}; the first of {plural(codes.size, 'result')}:")
    rows = []
    for place in islice(np.ndindex(codes.shape), SHOWN):
        number_record = number(fmt, int(codes[place]))
        rows.append(
            (f"d[{', '.join(map(str, place))}]", number_record["code"], number_record["hex"], number_record["decimal"])
        )
    print("\n".join(table(rows)))
