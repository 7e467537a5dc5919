"""The record of hwsim.report.explain as text: tables of terms, then the sum and its rounding, step by step.

The module knows the record's keys; it computes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from hwsim.report.text.words import facts, table

ExplainRecord = dict[str, Any]
WIDEST_DROPPED = 24  # dropped bits are spelt out up to here, else given as a number
ROUNDINGS = {
    "RNE": "to nearest, ties to even",
    "RNA": "to nearest, ties away from zero",
    "RZ": "toward zero",
    "RU": "toward plus infinity",
    "RD": "toward minus infinity",
}
DIRECTIONS = {
    "exact": "nothing is dropped",
    "down": "magnitude down",
    "up": "magnitude up",
    "overflow": "beyond the largest finite number",
}


def explain_text(record: ExplainRecord) -> str:
    """The whole explanation as text."""
    lines = _heading(record)
    steps = record["steps"]
    if len(steps) > 1 and all(len(step["operands"]) == 1 for step in steps):
        lines += ["", *_chain(record)]
    else:
        for index, step in enumerate(steps):
            of = f"step {index + 1} of {len(steps)}, " if len(steps) > 1 else ""
            lines += ["", f"{of}k = {_span(step)}", *_step(step, record["given_k"])]
    if len(steps) > 1:
        lines += ["", f"result  {_number(record['result'])}"]
    if record["exact"] is not None:
        words = exact_words(record["exact"], record["result"]["hex"], record["formats"]["d"])
        lines.append(f"{'exact   ' if len(steps) > 1 else '  exact        '}{words}")
    return "\n".join(lines)


def exact_words(exact: Mapping[str, Any], result: str, format: str) -> str:
    """An exact value, and how far a result of a format is from it. exact: as of hwsim.report.exact_element."""
    value, difference, places = _value({"kind": "finite", **exact}), exact["difference"], exact["last_places"]
    if difference is None:
        return f"{value}; the result is {result}"
    if difference == "0":
        return f"{value}; the result is exact"
    off = "" if places is None else f", {places} of the last place of {format}"
    return f"{value}; result - exact = {difference}{off}"


def _heading(record: ExplainRecord) -> list[str]:
    formats, unit = record["formats"], record["unit"]
    scale = f", block scales {formats['scale']}" if formats["scale"] else ""
    given_k = record["given_k"]
    k = f"K = {record['k']}" + (f", of which {given_k} given (the others +0)" if given_k < record["k"] else "")
    pairs = [
        (
            "instruction",
            f"{record['instruction']} on {record['device']}; evidence of its numerics: {record['evidence']}",
        ),
        ("operands", f"A {formats['a']}, B {formats['b']}, C {formats['c']}, D {formats['d']}{scale}; {k}"),
        ("unit", UNITS[unit["model"]](unit, formats["d"])),
    ]
    return facts([*pairs, *(("note", note) for note in record["notes"])])


def _rounded(unit: ExplainRecord, d: str) -> str:
    target = unit.get("result_format") or d
    return f"rounded {ROUNDINGS[unit['rounding']]} to {target}"


#: What a unit does, in a sentence, by model.
UNITS: Mapping[str, Callable[[ExplainRecord, str], str]] = MappingProxyType(
    {
        "fused": lambda unit, d: (
            f"fused: {unit['terms']} products a step and the accumulator, aligned to the largest exponent (not below "
            f"{unit['floor_exponent']}), each cut toward zero at {unit['fraction_bits']} fraction bits, added exactly, "
            f"{_rounded(unit, d)}"
        ),
        "exact": lambda unit, d: (
            f"exact: {unit['terms']} products a step and the accumulator, added exactly, {_rounded(unit, d)}"
        ),
        "fma_chain": lambda unit, d: f"fma_chain: one fused multiply-add per k, each {_rounded(unit, d)}",
        "pairwise": lambda unit, d: (
            f"pairwise: {unit['terms']} products a step, each rounded, added as a balanced tree, then to the "
            f"accumulator; every sum {_rounded(unit, d)}"
        ),
        "two_level": lambda unit, d: (
            f"two_level: {unit['terms']} products a step, cut toward zero at {unit['product_fraction_bits']} fraction "
            "bits and added"
            f"{' (even and odd k apart)' if unit['interleaved'] else ''}, then the accumulator, cut toward minus "
            f"infinity, {_rounded(unit, d)}"
        ),
        "integer": lambda unit, d: (
            f"integer: {unit['terms']} product{'' if unit['terms'] == 1 else 's'} a step and the accumulator, exact; "
            f"a sum beyond {d} {'wraps' if unit['overflow'] == 'wrap' else 'saturates'}"
        ),
        "block_scaled": lambda unit, d: (
            f"block_scaled: groups of {unit['group']} products added exactly and scaled, {unit['terms']} products a "
            f"step; groups and accumulator aligned to the largest exponent (not below {unit['floor_exponent']}), each "
            f"cut toward zero at {unit['fraction_bits']} fraction bits, added exactly, {_rounded(unit, d)}"
        ),
        "composite": lambda unit, d: (
            f"composite: operands widened to {unit['operand_format']}, {len(unit['selections'])} fused steps from "
            f"zero, each over a part of k, then one addition of the accumulator, {ROUNDINGS['RNE']}"
        ),
    }
)


def _span(step: ExplainRecord) -> str:
    ks = [row["k"] for row in step["operands"]]
    if ks == list(range(ks[0], ks[-1] + 1)):
        return f"{ks[0]}" if len(ks) == 1 else f"{ks[0]} to {ks[-1]}"
    return ", ".join(map(str, ks))


def _number(number: ExplainRecord) -> str:
    """A number as `0x3c00 = 0x1p+0 = 1`."""
    return f"{number['code']} = {_value(number)}"


def _value(number: ExplainRecord) -> str:
    if number["kind"] != "finite":
        return str(number["hex"])
    text = number["decimal"]
    if text == number["hex"]:
        return str(text)
    return f"{number['hex']} {'~' if text.startswith('~') else '='} {text.removeprefix('~')}"


def _step(step: ExplainRecord, given_k: int) -> list[str]:
    lines = _operands(step, given_k)
    if step["scales"]:
        rows = [
            (str(block["block"]), block["a"]["code"], block["a"]["hex"], block["b"]["code"], block["b"]["hex"])
            for block in step["scales"]
        ]
        lines += ["  block scales", *table(rows, ("block", "a", "", "b", ""), right=(0,), indent="    ")]
    lines += MODELS[step["model"]](step, given_k)
    return [*lines, f"  result       {_number(step['result'])}"]


def _operands(step: ExplainRecord, given_k: int) -> list[str]:
    """The operands with their products (for a composite, in its parts), then the accumulator."""
    products: Sequence[ExplainRecord | None] = step.get("products") or [None] * len(step["operands"])
    rows, hidden = [], []
    for operand, product in zip(step["operands"], products, strict=True):
        if operand["k"] >= given_k:
            hidden.append(operand["k"])
            continue
        a, b = operand["a"], operand["b"]
        row = [str(operand["k"]), a["code"], _read(a), a["decimal"], b["code"], _read(b), b["decimal"]]
        if product is not None:
            row += [product["hex"], product["exact"] if product["kind"] == "finite" else "", str(product["exponent"])]
        rows.append(row)
    head = ["k", "a", "", "", "b", "", ""]
    if products[:1] != [None]:
        head += ["product", "significand", "exponent"]
    lines = ["  operands" if products[:1] == [None] else "  operands and exact products"]
    lines += table(rows, head, right=(0, 9), indent="    ") if rows else []
    if hidden:
        lines.append(f"    k = {hidden[0]}{f' to {hidden[-1]}' if len(hidden) > 1 else ''}: not given, +0")
    scaled = f", times 2^-{step['scale_d']}" if step["scale_d"] else ""
    start = step["accumulator"]
    read = f", read as {start['read_as']}" if start["read_as"] else ""
    return [*lines, f"  accumulator  {_number(start)}{read}{scaled}"]


def _read(operand: ExplainRecord) -> str:
    """The value, and the one that the unit uses where it differs."""
    return f"{operand['hex']} read as {operand['read_as']}" if operand["read_as"] else str(operand["hex"])


def _alignment(step: ExplainRecord, given_k: int) -> list[str]:
    alignment = step["alignment"]
    bits, top = alignment["fraction_bits"], alignment["top_exponent"]
    deciding = ", ".join("c" if name == "c" else f"k = {name}" for name in alignment["top_terms"])
    why = (
        f"of {deciding}"
        if deciding
        else ("the floor" if top == alignment["floor_exponent"] else "of a group whose products cancel")
    )
    used = [row for row in alignment["terms"] if row["kept"] is not None]
    whole = max([2, *(len(f"{abs(int(row['kept'])) >> bits:b}") for row in used)])
    rows = [
        (row["term"], str(row["exponent"]), str(row["shift"]), binary(int(row["kept"]), bits, whole), _gone(row))
        for row in used
    ]
    lines = [f"  alignment    largest exponent {top} ({why}); kept down to 2^{alignment['last_place']}"]
    if rows:
        lines += table(
            rows, ("term", "exponent", "shift", f"kept, times 2^{top}", "dropped"), right=(0, 1, 2), indent="    "
        )
    zeros = [row["term"] for row in alignment["terms"] if row["kept"] is None and row["kind"] == "finite"]
    if zeros:
        shown = [name for name in zeros if not name.isdigit() or int(name) < given_k]
        hidden = len(zeros) - len(shown)
        shown += [f"{hidden} not given"] if hidden else []
        lines.append(f"    zero, taking no part: {', '.join(shown)}")
    return lines


def binary(value: int, fraction_bits: int, whole: int) -> str:
    """A signed integer in units of 2^-fraction_bits, in binary with a binary point: `+01.1000`."""
    bits = f"{abs(value):0{fraction_bits + whole}b}"
    return f"{'-' if value < 0 else '+'}{bits[:-fraction_bits]}.{bits[-fraction_bits:]}"


def _gone(row: ExplainRecord) -> str:
    if row["dropped"] is None:
        return ""
    bits = row["dropped_bits"]
    return bits if len(bits) <= WIDEST_DROPPED else f"{row['dropped']} (lowest {len(bits)} places)"


def _sum(step: ExplainRecord, words: str = "sum, exact") -> list[str]:
    """The sum, its leading place, and what the rounding drops."""
    if step["special"]:
        return [f"  special      {step['special']}: {_why_special(step)}"]
    total, rounding = step["sum"], step["rounding"]
    lines = [f"  {words:12} {_value(total)}"]
    if "last_place" in rounding:
        last_place = f"{rounding['format']} ends at 2^{rounding['last_place']}"
        leading = f"leading place 2^{rounding['leading_place']}, {last_place}"
        lines.append(f"  normalised   {leading}{' (subnormal)' if rounding['subnormal'] else ''}")
    lines.append(f"  rounded      {ROUNDINGS[rounding['rounding']]}: {_loss(rounding)}")
    return lines


def _loss(rounding: ExplainRecord) -> str:
    words = DIRECTIONS[rounding["direction"]]
    if rounding["dropped"] is None:
        return words
    share = rounding.get("dropped_last_places")
    return f"{words}; sum - result = {rounding['dropped']}" + (
        f", {share} of the last place of {rounding['format']}" if share else ""
    )


def _why_special(step: ExplainRecord) -> str:
    products = step.get("groups") or step.get("products") or []
    names = [product.get("k", row["k"]) for product, row in zip(products, step["operands"], strict=False)]
    odd = [
        f"product k = {name} is {product['hex']}"
        for name, product in zip(names, products, strict=False)
        if product["kind"] != "finite"
    ]
    accumulator = step["accumulator_term"]
    if accumulator["kind"] != "finite":
        odd.append(f"the accumulator is {accumulator['hex']}")
    if "products_sum" in step and step["products_sum"]["kind"] != "finite":
        odd.append(f"the sum of products is {step['products_sum']['hex']}")
    return "; ".join(odd) or "infinities of both signs met on the way"


def _fused(step: ExplainRecord, given_k: int) -> list[str]:
    return [*_alignment(step, given_k), *_sum(step)]


def _block_scaled(step: ExplainRecord, given_k: int) -> list[str]:
    rows = [
        (
            group["k"],
            group["hex"],
            group["decimal"],
            group["exact"] if group["kind"] == "finite" else "",
            str(group["exponent"]),
        )
        for group in step["groups"]
    ]
    return [
        "  groups, added exactly and scaled (the exponent is the scales')",
        *table(rows, ("k", "sum", "", "significand", "exponent"), right=(4,), indent="    "),
        *_fused(step, given_k),
    ]


def _plain(step: ExplainRecord, given_k: int) -> list[str]:
    return _sum(step)


def _pairwise(step: ExplainRecord, given_k: int) -> list[str]:
    names = ["products rounded", *(f"sums of {2**i}" for i in range(1, len(step["levels"])))]
    rows = [
        (name, str(i), total["code"], total["hex"], total["decimal"])
        for name, level in zip(names, step["levels"], strict=True)
        for i, total in enumerate(level)
    ]
    return ["  tree", *table(rows, indent="    ", right=(1,)), *_sum(step, "root + c")]


def _two_level(step: ExplainRecord, given_k: int) -> list[str]:
    def line(name: str, number: ExplainRecord, dropped: str | None) -> tuple[str, str, str, str]:
        return name, number["hex"], number["decimal"], "" if dropped is None else f"dropped {dropped}"

    product_exponent = step["product_exponent"]
    names = ["sum of products"] if len(step["partial_sums"]) == 1 else ["sum, even k", "sum, odd k"]
    rows = [
        line(name, number, None if i else step["partial_sums_dropped"])
        for i, (name, number) in enumerate(zip(names, step["partial_sums"], strict=True))
    ]
    rows.append(line("products, cut", step["product_sum"], step["product_sum_dropped"]))
    rows.append(line("c, cut", step["accumulator_cut"], step["accumulator_cut_dropped"]))
    if step["sum"] is not None:
        rows.append(line("their sum, cut", step["sum"], step["sum_dropped"]))
    first = "no product but zeros"
    if product_exponent is not None:
        first = f"largest product exponent {product_exponent}"
    return [
        f"  two levels   {first}; exponent of the second level {step['top_exponent']}",
        *table(rows, indent="    "),
        *_sum(step, "sum, cut"),
    ]


def _integer(step: ExplainRecord, given_k: int) -> list[str]:
    end = {None: "", "wrap": ", wrapped", "saturate": ", saturated"}[step["overflow"]]
    return [f"  sum, exact   {step['sum']['units']}{end}"]


def _composite(step: ExplainRecord, given_k: int) -> list[str]:
    lines = []
    for index, part in enumerate(step["parts"]):
        lines.append(f"  part {index + 1}, operands as {step['operand_format']}: k = {_span(part)}")
        lines += [f"  {line}" for line in _step(part, given_k)]
    lines.append(f"  products     {_number(step['products_sum'])}")
    return [*lines, *_sum(step, "plus c")]


#: The stages behind the operands, by model.
MODELS: Mapping[str, Callable[[ExplainRecord, int], list[str]]] = MappingProxyType(
    {
        "fused": _fused,
        "block_scaled": _block_scaled,
        "exact": _plain,
        "fma_chain": _plain,
        "pairwise": _pairwise,
        "two_level": _two_level,
        "integer": _integer,
        "composite": _composite,
    }
)


def _chain(record: ExplainRecord) -> list[str]:
    """The steps of a chain with one product each, one line per step."""
    rows = []
    lines = [f"accumulator  {_number(record['steps'][0]['accumulator'])}"]
    integer = record["unit"]["model"] == "integer"
    for step in record["steps"]:
        operand, product = step["operands"][0], step["products"][0]
        if operand["k"] >= record["given_k"]:
            continue
        a, b, result = operand["a"], operand["b"], step["result"]
        form = "decimal" if integer else "hex"
        left, right = (operand["decimal"] if integer else _read(operand) for operand in (a, b))
        total = step["special"] or (step["sum"]["units"] if integer else step["sum"]["hex"])
        lost = (
            {None: "", "wrap": "wraps"}.get(step["overflow"], "saturates")
            if integer
            else ""
            if step["special"]
            else _loss(step["rounding"])
        )
        rows.append(
            (
                str(operand["k"]),
                a["code"],
                left,
                b["code"],
                right,
                product[form],
                total,
                lost,
                result["code"],
                result[form],
            )
        )
    head = ("k", "a", "", "b", "", "product", "sum with the accumulator", "rounding", "result", "")
    if integer:
        head = (*head[:7], "", *head[8:])
    lines += table(rows, head, right=(0,))
    if len(rows) < len(record["steps"]):
        lines.append(f"  k = {record['given_k']} to {record['k'] - 1}: not given, +0")
    return lines
