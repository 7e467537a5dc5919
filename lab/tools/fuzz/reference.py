"""Random devices, schemes, shapes and options against exact integers: elements of C compared bit for bit.

python lab/tools/fuzz/reference.py [--count 2000] [--first 0] [--log FILE]

A case draws a device (shipped, or with random dot units), a scheme with options, sizes, operands from bit fields, an
order of summation and an epilogue; some take cuBLAS's order, are stacks, or go through the device's program. hwsim.run
gives C; some of its elements are computed again in Python's integers by `reading` from the resolved record and the
device's data, with the steps of hwsim.numerics.reference and nothing of the evaluator or the kernels. A tenth of the
cases are single instructions, block-scaled ones among them.
"""

import dataclasses
import random
from collections import Counter

import campaign
import drawing
import numpy as np
from reading.pieces import HOST
from reading.record import Reading
from reading.sums import divided, lengths

import hwsim
from hwsim.devices import dot_spec, find
from hwsim.devices.query import example
from hwsim.errors import HwsimError
from hwsim.formats import FORMATS, array_of, codes_of, decode, format_of
from hwsim.gemm.plan import Mixed
from hwsim.gemm.schedule import Epilogue, Schedule
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands
from hwsim.schemes import schemes

LARGEST = 20_000  # products of one element
WORK = 3_000  # products of the elements that are computed again
MOST_ELEMENTS = 16
SAME_DEVICE = 10  # so many numbers have one device, as reading it takes longer than a product
# signed slices and residues, which `reading` does not know; nor does it know scales of operands
UNREAD = ("fixedpoint-fp64", "ozaki2-int8", "ozaki2-fp8")
SCHEMES = {name: scheme for name, scheme in schemes().items() if name not in UNREAD and scheme.quantizes is None}
SCALED = ("bf16x9", "bf16x6", "bf16x3") * 8  # schemes of units that scale their accumulator, which few devices have


def natives(device):
    """Names of single instructions that a plan may ask for."""
    found = []
    for key, model in device.matrix_instructions.items():
        if model.scale_format is None:
            found.append(example(device, key, n=model.n_last, a=model.a, b=model.b))
    return found


def request(rng, device, scheme):
    """(sizes, options of hwsim.run, fields of the schedule)."""
    m, n = rng.choice(drawing.EXTENTS), rng.choice(drawing.EXTENTS)
    k = rng.choice(drawing.KS)
    given = drawing.scheme_options(rng, scheme, device)
    if rng.random() < 0.3:
        given["alpha"] = drawing.number(rng)
    if rng.random() < 0.3:
        given["output"] = rng.choice(("fp32", "fp16", "bf16", "fp64", "e4m3", "e5m2", "int32", "int8", "tf32"))
    fields = drawing.schedule(rng, m, n, k, natives(device)) if rng.random() < 0.5 else {}
    if device.name in ("h100", "h200") and rng.random() < 0.35:
        given["library"] = "cublas"
        fields = {}
        m, n = rng.choice((1, 16, 64, 65, 128)), rng.choice((1, 16, 64, 130))
        k = rng.choice((*drawing.KS, 512, 1024))
    tail = drawing.epilogue(rng) if rng.random() < 0.4 and "library" not in given else {}
    if fields.get("start") == "c":
        given.pop("alpha", None)
    if tail:
        fields["epilogue"] = Epilogue(**tail)
    return (m, n, k), given, fields


def composites(device):
    """Native formats that a composite unit multiplies; few devices have one."""
    return sorted(fmt for fmt, name in device.native.items() if dot_spec(device, name).unit.model == "composite")


def inputs(rng, device, scheme, given):
    """The format of A and B as the caller has them."""
    if scheme.name == "ape-int16":
        return "int16"
    kind = rng.random()
    if scheme.takes_native_formats and kind < 0.4 and device.native:
        wanted = given.get("format")
        if wanted in device.native and rng.random() < 0.7:
            return wanted
        return rng.choice(sorted(device.native))
    if scheme.input_formats[0] == "fp64" and kind < 0.8:
        return "fp64"
    if kind > 0.9:
        return rng.choice(("fp64", "fp16", "bf16", "fp32", "e4m3", "tf32", "int8"))
    return "fp32"


def called(rng, data, number):
    """One GEMM; (word, what it reached)."""
    device, changed = drawing.device(number // SAME_DEVICE)
    if device is None:
        return "no device", ()
    names = SCALED if any(x.scale_input_d for x in device.matrix_instructions.values()) else ()
    rare = composites(device)
    aimed = bool(rare) and rng.random() < 0.7
    scheme = SCHEMES["native" if aimed or rng.random() < 0.35 else rng.choice(sorted([*SCHEMES, *names]))]
    sizes, given, fields = request(rng, device, scheme)
    fmt = inputs(rng, device, scheme, given)
    if aimed:
        fmt = rng.choice(rare)
        given.pop("format", None)
    result_format = format_of(given.get("output") or "fp32")
    least, most = (-126, 127) if result_format.is_integer else (result_format.min_exponent, result_format.max_exponent)
    kind, cancels = rng.choice(drawing.KINDS), rng.random() < 0.25
    m, n, k = sizes
    lead = rng.choice(((), (), (), (), (), (2,), (3,)))
    if "regions" in fields or "library" in given:
        lead = ()
    each = [drawing.pair(data, fmt, m, n, k, kind, least, most, cancels) for _ in range(lead[0] if lead else 1)]
    a, b = (np.stack([x[side] for x in each]) if lead else each[0][side] for side in (0, 1))
    call = {"device": device, "scheme": scheme.name, "threads": rng.choice((1, 1, 2)), "timing": False, **given}
    is_typed = rng.random() < 0.5 and FORMATS[fmt].dtype_name and fmt not in ("tf32", "hf32")
    if not is_typed:
        call["input_format"] = fmt
    c = bias = c_format = None
    if rng.random() < 0.35 or fields.get("start") == "c":
        c_format = rng.choice(("fp32", "fp32", "fp64", "fp16", "int32"))
        c = drawing.codes(data, c_format, (m, n), kind if c_format != "int32" else "near", least, most)
        call["c"] = array_of(np.broadcast_to(c, (*lead, m, n)).copy(), format_of(c_format))
        if rng.random() < 0.5 and fields.get("start") != "c":
            call["beta"] = drawing.number(rng)
    if rng.random() < 0.25:
        of_bias = drawing.codes(data, "fp32", (1, n), rng.choice(("near", "small", "any")), least, most)
        bias = array_of(of_bias[0], FORMATS["fp32"])
        if rng.random() < 0.3:
            bias = data.integers(-100, 100, n).astype(np.float64)
        call["bias"] = bias
    if fields:
        try:
            call["schedule"] = Schedule(**fields)
        except HwsimError:
            fields = {"epilogue": fields["epilogue"]} if "epilogue" in fields else {}
            if fields:
                call["schedule"] = Schedule(**fields)
    if rng.random() < 0.12 and c is None and bias is None and not fields:
        call |= {"functional": True, "timing": True}
    picked = {}
    if rng.random() < 0.1 and "functional" not in call:
        picked = {"rows": sorted(rng.sample(range(m), min(m, 2))), "cols": sorted(rng.sample(range(n), min(n, 3)))}
    x, y = (array_of(x, format_of(fmt)) if is_typed else x for x in (a, b))
    result = None
    for left_out in ((), ("functional",), ("schedule",), ("schedule", "output", "c", "beta", "bias"), tuple(given)):
        call = {name: value for name, value in call.items() if name not in left_out}
        if "c" not in call:
            c = None
            call.pop("beta", None)
        bias = bias if "bias" in call else None
        try:
            result = hwsim.run(x, y, **call, **picked)
            break
        except HwsimError:
            continue
    if result is None:
        return "refused", ()
    record = result.gemm
    as_asked(record, call)
    if k * record.single.products > LARGEST:
        return "too large to be read", ()
    found = codes_of(np.ascontiguousarray(result.c), format_of(record.output))
    rows, cols = picked.get("rows", range(m)), picked.get("cols", range(n))
    count = max(2, min(MOST_ELEMENTS, WORK // (k * record.single.products)))
    places = {(0, 0), (len(rows) - 1, len(cols) - 1)}
    while len(places) < min(count, len(rows) * len(cols)):
        places.add((rng.randrange(len(rows)), rng.randrange(len(cols))))
    at = rng.randrange(lead[0]) if lead else 0
    reading = Reading(
        record,
        device,
        fmt,
        each[at][0].tolist(),
        each[at][1].tolist(),
        None if c is None else c.tolist(),
        c_format,
        None if bias is None else bias.tolist(),
    )
    values = found[at] if lead else found
    kinds = Counter()
    for i, j in sorted(places):
        expected, got = reading.element(rows[i], cols[j]), int(values[i, j])
        assert got == expected, (
            f"C[{rows[i]}, {cols[j]}] of {sizes}: {got:#x}, expected {expected:#x} ({record.output}); {kind} {fmt}, "
            f"{device.name} {changed}, {shown(call)}"
        )
        kinds[word_of(got, record.output)] += 1
    return "equal", reached(device, changed, record, call, fields, fmt, kind, cancels, kinds, lead, picked)


def shown(call):
    """A call without its arrays."""
    return {x: (y.name if x == "device" else y) for x, y in call.items() if x not in ("c", "bias")}


def as_asked(record, call):
    """The record is of what was asked for: what the reading takes from it was not lost on the way."""
    schedule = call.get("schedule")
    if schedule is not None:
        for name in ("sum", "regions", "merge_order", "merge_into", "partial_format", "merge_format", "k_permutation"):
            assert getattr(record.schedule, name) == getattr(schedule, name), name
        if record.schedule.slice_k is None:  # the number of slices that run
            asked = dataclasses.replace(record.schedule, split_k=schedule.split_k)
            assert record.schedule.split_k == len(lengths(asked, record.problem.k)), "split_k"
        else:
            assert record.schedule.split_k == schedule.split_k, "split_k"
        for name in ("slice_k", "remainder", "tile_k", "operand_rounding", "start"):
            assert getattr(record.schedule, name) == getattr(schedule, name), name
        for name in ("promotion_k", "slice_multiple", "instruction"):
            assert getattr(schedule, name) in (None, getattr(record.schedule, name)), name
        for name in ("contraction", "product_format", "output_rounding"):
            assert getattr(record.epilogue, name) == getattr(schedule.epilogue, name), name
    assert call.get("alpha", 1.0) == record.epilogue.alpha
    assert call.get("output", record.output) == record.output
    assert call.get("beta", float("c" in call)) == record.epilogue.beta
    assert record.scheme == call["scheme"]
    options = {one.name: one.value for one in record.scheme_options}
    for name, value in call.items():
        if name == "format" and (schedule is not None and schedule.instruction is not None):
            continue  # the instruction multiplies wider operands
        if name in options and "library" not in call and not (name == "slices" and value == 0):
            assert options[name] == value, name


def word_of(code, fmt):
    """What kind of value a code is."""
    known = format_of(fmt)
    value = decode(known, code)
    if value.kind != "finite":
        return value.kind
    if not value.significand:
        return "-0" if value.sign else "+0"
    if known.is_integer:
        return "integer"
    if value.significand >> known.fraction_bits == 0:
        return "subnormal"
    return "largest" if code in (known.largest_code(0), known.largest_code(1)) else "normal"


def reached(device, changed, record, call, fields, fmt, kind, cancels, kinds, lead, picked):
    """What a case reached, as (group, name, count)."""
    yield "device", device.name, 1
    for name in changed:
        yield "devices", name, 1
    yield "scheme", record.scheme, 1
    for name in call:
        if name not in ("device", "scheme", "threads", "timing", "schedule", "input_format"):
            yield "option", name, 1
    if "schedule" in call:
        for name in fields:
            yield "schedule", name, 1
        for name in ("contraction", "product_format"):
            if getattr(record.epilogue, name):
                yield "epilogue", f"{name} {getattr(record.epilogue, name)}", 1
        yield "epilogue", f"rounding {record.epilogue.output_rounding}", 1
    plans = record.plan.plans if isinstance(record.plan, Mixed) else (record.plan,)
    for plan in plans:
        yield "split", plan.split, 1
        yield "arithmetic", plan.arithmetic, 1
    spec = dot_spec(device, record.unit)
    yield "unit", spec.unit.model, 1
    yield "rounding", getattr(spec.unit, "rounding", "-"), 1
    yield "operands", fmt, 1
    yield "piece", record.single.a_pieces[0].format, 1
    yield "output", record.output, 1
    yield "values", f"{kind}{' cancelling' if cancels else ''}", 1
    if record.library is not None:
        written = "regions" if record.schedule.regions else "sum" if record.schedule.sum else "slices"
        yield "library", f"{record.library.name}: {written}", 1
    if lead:
        yield "option", "stack", 1
    if picked:
        yield "option", "rows and cols", 1
    for name, count in kinds.items():
        yield "elements", name, count
    yield "elements", "all", sum(kinds.values())


def single(rng, data, number):
    """One instruction of a device on single elements; (word, what it reached)."""
    device, changed = drawing.device(number // SAME_DEVICE)
    if device is None:
        return "no device", ()
    scaled = [x for x, model in device.matrix_instructions.items() if model.scale_format is not None]
    key = rng.choice(scaled if scaled and rng.random() < 0.5 else sorted(device.matrix_instructions))
    entry = device.matrix_instructions[key]
    formats = [rng.choice(entry.formats) if entry.formats else x for x in (entry.a, entry.b)]
    name = example(device, key, n=entry.n_last or entry.n, a=formats[0], b=formats[1])
    model, spec = find(device, name), dot_spec(device, name)
    kind, cases = rng.choice(drawing.KINDS), 8
    known = format_of(spec.d)
    least, most = (-126, 127) if known.is_integer else (known.min_exponent, known.max_exponent)
    a, b, c = (
        drawing.codes(data, fmt, (cases, size), kind, least, most)
        for fmt, size in ((spec.a, model.k), (spec.b, model.k), (spec.c, 1))
    )
    scales = {}
    if spec.scale_format is not None:
        blocks = model.k // spec.scale_block
        for side in ("scale_a", "scale_b"):
            scales[side] = drawing.codes(data, spec.scale_format, (cases, blocks), rng.choice(("near", "any")), -5, 5)
    scale_d = rng.randrange(model.scale_input_d + 1) if model.scale_input_d and not scales else 0
    c = c[:, 0]
    try:
        got = device.dot(name, a, b, c, **scales, scale_d=scale_d)
    except HwsimError:
        return "refused", ()
    for at in range(cases):
        left, right, start, by = a[at].tolist(), b[at].tolist(), int(c[at]), scale_d
        if model.operand_rounding is not None:
            left, right = ([rounded_word(x, spec, model) for x in side] for side in (left, right))
        if scale_d and model.scale_input_d_rule != "exact":
            start, by = divided(start, format_of(spec.c), scale_d, model.scale_input_d_rule), 0
        own = {side: codes[at].tolist() for side, codes in scales.items()}
        expected = reference.dot(spec, DotOperands(left, right, start, scale_d=by, **own))
        said = f"{device.name} {changed} {name} {spec}: {int(got[at]):#x}, expected {expected:#x}"
        assert int(got[at]) == expected, said
    found = [("instruction", spec.unit.model, 1), ("instruction values", kind, 1), ("elements", "all", cases)]
    return "equal instruction", found


def rounded_word(code, spec, model):
    """A 32-bit word rounded to the operand's format by the instruction."""
    return HOST.code(decode(format_of("fp32"), code), spec.a, model.operand_rounding)


def case(number):
    """One case."""
    rng, data = random.Random(number), np.random.default_rng(number)
    if rng.random() < 0.1:
        return single(rng, data, number)
    return called(rng, data, number)


if __name__ == "__main__":
    campaign.HANG_S = 60.0  # of two elements of LARGEST products
    campaign.main("reference", case, __doc__.partition("\n")[0])
