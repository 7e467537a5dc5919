"""Explains one output element of a matrix instruction, stage by stage, as a plain record (`hwsim explain --json`).

The stages are those of hwsim.numerics; here they are named, paired with the operands' codes, and compared with each
other to show what a stage has dropped. The module knows devices and units; it adds nothing to their arithmetic.
Integers that may be long (significands, sums) are text; codes are hexadecimal text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from hwsim.devices import dot_spec, instruction, numerics_evidence
from hwsim.devices.arithmetic import scaled_accumulator
from hwsim.errors import InputError, MismatchError
from hwsim.formats import Exact, code_dtype, decode, format_of, round_to
from hwsim.numerics import reference
from hwsim.numerics.block_scaled import BlockScaledStages
from hwsim.numerics.composite import CompositeStages, widen
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.exact import ExactStages
from hwsim.numerics.fused import FusedStages
from hwsim.numerics.integer import IntegerStages
from hwsim.numerics.pairwise import PairwiseStages
from hwsim.numerics.terms import Addend, add_exactly, read_operand, special_of
from hwsim.numerics.two_level import FixedPoint, TwoLevelStages
from hwsim.numerics.units import BlockScaledUnit, CompositeUnit, DotSpec, FusedUnit, PairwiseUnit, Specials
from hwsim.report.exact_element import exact_element
from hwsim.report.text.number_text import code_text, decimal, hex_float, power_form

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.devices.model import InstructionModel

SCHEMA = "hwsim.explain/1"
ExplainRecord = dict[str, Any]


def explain(
    device: Device,
    name: str,
    operands: DotOperands,
) -> ExplainRecord:
    """The record for one element of instruction `name` on `device`.

    operands: of one element, K' <= K codes of a and b; the rest are +0. The result is compared with what `Device.dot`
    computes; a difference raises MismatchError. Raises InputError and UnsupportedError as `Device.dot`.
    """
    model, spec = instruction(device, name), dot_spec(device, name)
    computed = _by_device(device, name, spec, operands)
    a, b, c, scale_a, scale_b, scale_d = operands
    notes: list[str] = []
    row, column = (
        _padded(_rounded_operands(x, fmt, model, notes, which), model.k)
        for which, x, fmt in (("a", a, spec.a), ("b", b, spec.b))
    )
    start, left = c, scale_d
    if scale_d and model.scale_input_d_rule != "exact":
        scaled, _ = scaled_accumulator(
            np.array([c], code_dtype(format_of(spec.c))), format_of(spec.c), scale_d, model.scale_input_d_rule
        )
        start, left = int(scaled[0]), 0
        notes.append(f"c times 2^-{scale_d} is taken to {spec.c} first ({model.scale_input_d_rule})")
    chain = reference.chain(spec, DotOperands(row, column, start, scale_a, scale_b, left))
    if chain[-1].result != computed:
        raise MismatchError(
            f"{name} on {device.name}: the stages end with {chain[-1].result:#x}, the kernels give "
            f"{computed:#x}; please report it, with these operands"
        )
    terms = spec.unit.terms
    steps = []
    for index, stages in enumerate(chain):
        ks = range(index * terms, min((index + 1) * terms, len(row)))
        accumulator = chain[index - 1].result if index else start
        step = replace(spec, c=spec.d) if index else spec
        codes = [row[k] for k in ks], [column[k] for k in ks]
        scales = _scales(spec, ks, operands)
        steps.append(_step(step, stages, ks, *codes, accumulator, scales, 0 if index else left))
    return {
        "schema": SCHEMA,
        "device": device.name,
        "device_sha256": device.sha256,
        "instruction": name,
        "evidence": str(numerics_evidence(device, name, scaled=scale_d != 0)),
        "unit": {"model": spec.unit.model, **_lists(asdict(spec.unit))},
        "formats": {"a": spec.a, "b": spec.b, "c": spec.c, "d": spec.d, "scale": spec.scale_format},
        "k": model.k,
        "given_k": len(a),
        "scale_d": scale_d,
        "notes": notes,
        "steps": steps,
        "result": number(spec.d, computed),
        "exact": exact_element(
            (*((spec.a, spec.b) if model.operand_rounding is None else ("fp32", "fp32")), spec.c),
            None if spec.scale_block is None or spec.scale_format is None else (spec.scale_format, spec.scale_block),
            operands,
            (spec.d, computed),
        ),
    }


def _scales(spec: DotSpec, ks: range, operands: DotOperands) -> list[ExplainRecord] | None:
    """The scales of the blocks that a step's products are of; None: there are none."""
    block, scale_a, scale_b = spec.scale_block, operands.scale_a, operands.scale_b
    if block is None or scale_a is None or scale_b is None:
        return None
    fmt, blocks = str(spec.scale_format), range(ks.start // block, -(-ks.stop // block))
    return [{"block": i, "a": number(fmt, scale_a[i]), "b": number(fmt, scale_b[i])} for i in blocks]


def number(fmt: str, code: int) -> ExplainRecord:
    """A code with its exact value: hexadecimal floating point (integers: decimal), significand and place, decimal."""
    number_format = format_of(fmt)
    value = decode(number_format, code)
    record = {"code": code_text(code, number_format.bits)}
    record |= _value(value.kind, value.sign, value.significand, value.exponent)
    return record | {"hex": record["decimal"]} if number_format.is_integer else record


def _value(kind: str, sign: int, significand: int, last_place: int) -> ExplainRecord:
    """An exact value. hex: hexadecimal floating point; exact: significand * 2^last place; decimal: with ~ where
    shortened.
    """
    if kind != "finite":
        text = "nan" if kind == "nan" else "-infinity" if sign else "infinity"
        return {"kind": kind, "hex": text, "exact": text, "decimal": text}
    parts = sign, significand, last_place
    return {"kind": kind, "hex": hex_float(*parts), "exact": power_form(*parts), "decimal": decimal(*parts)}


def _by_device(device: Device, name: str, spec: DotSpec, operands: DotOperands) -> int:
    def codes(values: Sequence[int] | int | None, fmt: str | None) -> Any:
        return None if values is None or fmt is None else np.array(values, code_dtype(format_of(fmt)))

    a, b, c, scale_a, scale_b, scale_d = operands
    if spec.scale_format is None and (scale_a is not None or scale_b is not None):
        raise InputError(f"{name} takes no scale_a and scale_b")
    scales = {"scale_a": codes(scale_a, spec.scale_format), "scale_b": codes(scale_b, spec.scale_format)}
    return int(device.dot(name, codes(a, spec.a), codes(b, spec.b), codes(c, spec.c), **scales, scale_d=scale_d))


def _rounded_operands(
    codes: Sequence[int], fmt: str, model: InstructionModel, notes: list[str], which: str
) -> list[int]:
    """Operands as the unit reads them, where the instruction first rounds 32-bit words to its format."""
    if model.operand_rounding is None:
        return list(codes)
    notes.append(f"{which}: 32-bit words rounded {model.operand_rounding} to {fmt} first")
    word = format_of("fp32")
    return [round_to(format_of(fmt), decode(word, code), model.operand_rounding) for code in codes]


def _lists(plain: Any) -> Any:
    """The value with tuples replaced by lists, as in JSON."""
    if isinstance(plain, dict):
        return {key: _lists(value) for key, value in plain.items()}
    return [_lists(value) for value in plain] if isinstance(plain, tuple) else plain


def _operand(fmt: str, code: int, specials: Specials) -> ExplainRecord:
    """An operand as in `number`; read_as: the value that the unit uses, where it differs, else None."""
    value, term = decode(format_of(fmt), code), read_operand(format_of(fmt), code, specials)
    same = (value.kind, value.sign, value.significand) == (term.kind, term.sign, term.significand)
    read = None if same else _value(term.kind, term.sign, term.significand, term.last_place)["hex"]
    return {**number(fmt, code), "read_as": read}


def _padded(codes: list[int], k: int) -> list[int]:
    return codes + [0] * (k - len(codes))


def _step(
    spec: DotSpec,
    stages: reference.Stages,
    ks: Sequence[int],
    a: Sequence[int],
    b: Sequence[int],
    c: int,
    scales: list[ExplainRecord] | None,
    scale_d: int = 0,
) -> ExplainRecord:
    """One step: its operands, then the stages of its model."""
    specials = getattr(spec.unit, "specials", Specials())
    return {
        "model": spec.unit.model,
        "operands": [
            {"k": k, "a": _operand(spec.a, x, specials), "b": _operand(spec.b, y, specials)}
            for k, x, y in zip(ks, a, b, strict=True)
        ],
        "accumulator": _operand(spec.c, c, specials),
        "scale_d": scale_d,
        "scales": scales,
        **_STAGES[type(stages)](spec, stages, ks, a, b),
        "result": number(spec.d, stages.result),
    }


def _term(term: Addend) -> ExplainRecord:
    """A product or an accumulator inside the unit; exponent as used for alignment."""
    return {**_value(term.kind, term.sign, term.significand, term.last_place), "exponent": term.exponent}


def _fixed(value: int, last_place: int) -> ExplainRecord:
    return {"units": str(value), "last_place": last_place, **_value("finite", int(value < 0), abs(value), last_place)}


def _special(special: Exact | None) -> str | None:
    return None if special is None else _value(special.kind, special.sign, 0, 0)["hex"]


def _dropped(exact: Fraction, rounded: Fraction) -> str | None:
    """The difference exact - rounded, exactly; None where it is zero."""
    rest = exact - rounded
    if not rest:
        return None
    return hex_float(int(rest < 0), abs(rest.numerator), 1 - rest.denominator.bit_length())


def _fraction(value: int, last_place: int) -> Fraction:
    return Fraction(value) * Fraction(2) ** last_place


def _alignment(
    names: Sequence[str], terms: Sequence[Addend], top: int, last_place: int, cuts: Sequence[int]
) -> ExplainRecord:
    """Each term's alignment to the largest exponent: its shift, and what remains (in units of the last place kept)."""
    rows = []
    for name, term, rounded in zip(names, terms, cuts, strict=True):
        row: ExplainRecord = {
            "term": name,
            "kind": term.kind,
            "exponent": None,
            "shift": None,
            "kept": None,
            "dropped": None,
        }
        if term.kind == "finite" and not term.is_zero:
            gone = term.significand - (
                abs(rounded) << last_place - term.last_place
                if last_place > term.last_place
                else abs(rounded) >> term.last_place - last_place
            )
            places = max(last_place - term.last_place, 0)
            row |= {
                "exponent": term.exponent,
                "shift": top - term.exponent,
                "kept": str(rounded),
                "dropped": hex_float(term.sign, gone, term.last_place) if gone else None,
                "dropped_bits": f"{gone:0{places}b}" if gone else "",
            }
        rows.append(row)
    deciding = [row["term"] for row in rows if row["exponent"] == top]
    return {"top_exponent": top, "top_terms": deciding, "last_place": last_place, "terms": rows}


def _rounding(
    spec: DotSpec, value: ExplainRecord | None, rounding: str, result: int, narrow: str | None = None
) -> ExplainRecord:
    """The rounding of the sum to the resulting code. value: the sum (`_fixed`), or None where an infinity or NaN
    overrules it.
    """
    target, d = format_of(narrow or spec.d), format_of(spec.d)
    record: ExplainRecord = {"rounding": rounding, "format": target.name, "dropped": None, "direction": None}
    if value is None:
        return record
    exact = _fraction(int(value["units"]), value["last_place"])
    units = abs(int(value["units"]))
    if units:
        leading = units.bit_length() - 1 + value["last_place"]
        record["leading_place"] = leading
        record["last_place"] = max(leading, target.min_exponent) - target.fraction_bits
        record["subnormal"] = leading < target.min_exponent
    back = decode(d, result)
    if back.kind != "finite":
        record["direction"] = "overflow"
        return record
    rounded = back.fraction
    record["dropped"] = _dropped(exact, rounded)
    if units:
        share = abs(exact - rounded) / Fraction(2) ** record["last_place"]
        record["dropped_last_places"] = str(share) if share.denominator < 1 << 20 else f"~{float(share):.6g}"
    grown = abs(rounded) > abs(exact)
    record["direction"] = "exact" if exact == rounded else "up" if grown else "down"
    return record


def _names(ks: Sequence[int]) -> list[str]:
    return [str(k) for k in ks]


def _fused(spec: DotSpec, stages: FusedStages, ks: Sequence[int], a: Sequence[int], b: Sequence[int]) -> ExplainRecord:
    unit = spec.unit
    if not isinstance(unit, FusedUnit):
        raise InputError(f"fused stages of a {unit.model} unit")
    count = len(ks)
    total = _fixed(stages.total, stages.cut_last_place)
    return {
        "products": [_term(term) for term in stages.products[:count]],
        "accumulator_term": _term(stages.accumulator),
        "alignment": _alignment(
            [*_names(ks), "c"],
            [*stages.products[:count], stages.accumulator],
            stages.top_exponent,
            stages.cut_last_place,
            [*stages.cut_terms[:count], stages.cut_terms[-1]],
        )
        | {"fraction_bits": unit.fraction_bits, "floor_exponent": unit.floor_exponent},
        "special": _special(stages.special),
        "sum": None if stages.special else total,
        "rounding": _rounding(
            spec, None if stages.special else total, unit.rounding, stages.result, unit.result_format
        ),
    }


def _block_scaled(
    spec: DotSpec, stages: BlockScaledStages, ks: Sequence[int], a: Sequence[int], b: Sequence[int]
) -> ExplainRecord:
    unit = spec.unit
    if not isinstance(unit, BlockScaledUnit):
        raise InputError(f"block-scaled stages of a {unit.model} unit")
    names = [f"{ks[i]}..{ks[min(i + unit.group, len(ks)) - 1]}" for i in range(0, len(ks), unit.group)]
    total = _fixed(stages.total, stages.cut_last_place)
    return {
        "products": [_term(term) for term in stages.products[: len(ks)]],
        "groups": [{"k": name, **_term(term)} for name, term in zip(names, stages.groups, strict=True)],
        "accumulator_term": _term(stages.accumulator),
        "alignment": _alignment(
            [*names, "c"],
            [*stages.groups, stages.accumulator],
            stages.top_exponent,
            stages.cut_last_place,
            stages.cut_terms,
        )
        | {"fraction_bits": unit.fraction_bits, "floor_exponent": unit.floor_exponent},
        "special": _special(stages.special),
        "sum": None if stages.special else total,
        "rounding": _rounding(spec, None if stages.special else total, unit.rounding, stages.result),
    }


def _exact(spec: DotSpec, stages: ExactStages, ks: Sequence[int], a: Sequence[int], b: Sequence[int]) -> ExplainRecord:
    total = None if stages.special else _fixed(stages.total, stages.last_place)
    return {
        "products": [_term(term) for term in stages.products[: len(ks)]],
        "accumulator_term": _term(stages.accumulator),
        "special": _special(stages.special),
        "sum": total,
        "rounding": _rounding(spec, total, _rounding_name(spec), stages.result),
    }


def _rounding_name(spec: DotSpec) -> str:
    return str(getattr(spec.unit, "rounding", "RNE"))


def _pairwise(
    spec: DotSpec, stages: PairwiseStages, ks: Sequence[int], a: Sequence[int], b: Sequence[int]
) -> ExplainRecord:
    unit = spec.unit
    if not isinstance(unit, PairwiseUnit):
        raise InputError(f"pairwise stages of a {unit.model} unit")
    root = decode(format_of(spec.d), stages.levels[-1][0])
    last = Addend(root.kind, root.sign, root.significand, root.exponent)
    total = None if special_of((stages.accumulator, last)) else _fixed(*add_exactly((stages.accumulator, last)))
    return {
        "products": [_term(term) for term in stages.products[: len(ks)]],
        "accumulator_term": _term(stages.accumulator),
        "levels": [[number(spec.d, code) for code in level] for level in stages.levels],
        "special": _special(special_of((stages.accumulator, last))),
        "sum": total,
        "rounding": _rounding(spec, total, unit.rounding, stages.result),
    }


def _two_level(
    spec: DotSpec, stages: TwoLevelStages, ks: Sequence[int], a: Sequence[int], b: Sequence[int]
) -> ExplainRecord:
    def joined(fixed: FixedPoint) -> ExplainRecord:
        return _fixed(fixed.value, fixed.last_place)

    def worth(fixed: FixedPoint) -> Fraction:
        return _fraction(fixed.value, fixed.last_place)

    finite = [term for term in stages.products if term.kind == "finite"]
    products = _fraction(*add_exactly(finite))
    partial = sum((worth(part) for part in stages.partial_sums), Fraction(0))
    start = (
        Fraction(0)
        if stages.accumulator.kind != "finite"
        else _fraction(stages.accumulator.signed_significand, stages.accumulator.last_place)
    )
    both = worth(stages.product_sum) + worth(stages.accumulator_cut)
    total = None if stages.special else joined(stages.total)
    return {
        "products": [_term(term) for term in stages.products[: len(ks)]],
        "accumulator_term": _term(stages.accumulator),
        "product_exponent": stages.product_exponent,
        "partial_sums": [joined(part) for part in stages.partial_sums],
        "partial_sums_dropped": _dropped(products, partial),
        "top_exponent": stages.top_exponent,
        "product_sum": joined(stages.product_sum),
        "product_sum_dropped": _dropped(partial, worth(stages.product_sum)),
        "accumulator_cut": joined(stages.accumulator_cut),
        "accumulator_cut_dropped": _dropped(start, worth(stages.accumulator_cut)),
        "sum_dropped": _dropped(both, worth(stages.total)),
        "special": _special(stages.special),
        "sum": total,
        "rounding": _rounding(spec, total, _rounding_name(spec), stages.result),
    }


def _integer(
    spec: DotSpec, stages: IntegerStages, ks: Sequence[int], a: Sequence[int], b: Sequence[int]
) -> ExplainRecord:
    d = format_of(spec.d)
    outcome = decode(d, stages.result)
    value = -outcome.significand if outcome.sign else outcome.significand
    return {
        "products": [_value("finite", int(x < 0), abs(x), 0) | {"exponent": 0} for x in stages.products[: len(ks)]],
        "special": None,
        "sum": _fixed(stages.total, 0),
        "overflow": getattr(spec.unit, "overflow", "wrap") if value != stages.total else None,
    }


def _composite(
    spec: DotSpec, stages: CompositeStages, ks: Sequence[int], a: Sequence[int], b: Sequence[int]
) -> ExplainRecord:
    unit = spec.unit
    if not isinstance(unit, CompositeUnit):
        raise InputError(f"composite stages of a {unit.model} unit")
    wide_a, wide_b = widen(a, spec.a, unit.operand_format), widen(b, spec.b, unit.operand_format)
    inner = DotSpec(unit.inner, unit.operand_format, unit.operand_format, spec.d, spec.d)
    partial = format_of(spec.d).zero_code()
    parts = []
    for residues, part in zip(unit.selections, stages.steps, strict=True):
        chosen = [i for i in range(len(a)) if i % unit.modulus in residues]
        parts.append(
            _step(
                inner,
                part,
                [ks[i] for i in chosen],
                [wide_a[i] for i in chosen],
                [wide_b[i] for i in chosen],
                partial,
                None,
            )
        )
        partial = part.result
    value = decode(format_of(spec.d), partial)
    last = Addend(value.kind, value.sign, value.significand, value.exponent)
    special = special_of((last, stages.accumulator))
    total = None if special else _fixed(*add_exactly((last, stages.accumulator)))
    return {
        "operand_format": unit.operand_format,
        "parts": parts,
        "products_sum": number(spec.d, partial),
        "accumulator_term": _term(stages.accumulator),
        "special": _special(special),
        "sum": total,
        "rounding": _rounding(spec, total, "RNE", stages.result),
    }


_STAGES: Mapping[type[Any], Callable[[DotSpec, Any, Sequence[int], Sequence[int], Sequence[int]], ExplainRecord]] = (
    MappingProxyType(
        {
            FusedStages: _fused,
            BlockScaledStages: _block_scaled,
            ExactStages: _exact,
            PairwiseStages: _pairwise,
            TwoLevelStages: _two_level,
            IntegerStages: _integer,
            CompositeStages: _composite,
        }
    )
)
