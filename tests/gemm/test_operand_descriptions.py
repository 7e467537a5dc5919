"""Operands of a problem: their descriptions, how records write them, and which parts refuse what none computes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hwsim
from hwsim.dataflows.davinci import cube_kernel, join_ops, vector_epilogue
from hwsim.dataflows.registry import dataflow
from hwsim.dataflows.tiled import loads, mainloop, operand_feed, products, promotion, tile_epilogue
from hwsim.devices import load
from hwsim.errors import InputError, UnsupportedError
from hwsim.evaluate import chains, epilogue
from hwsim.evaluate.product import Evaluator
from hwsim.formats import format_of
from hwsim.gemm import codec, refusals
from hwsim.gemm.problem import SCALES, OperandDescription, OperandScale, PlainProblem, Problem, plain_operand
from hwsim.gemm.record import Gemm
from hwsim.resolve.mapping_choice import program_of

SIZES = {"m": 64, "n": 48, "k": 64}
EVERY_SCALE = [
    OperandScale(format, rows, k, is_two_level)
    for (rows, k), (_, formats) in SCALES.items()
    for format in formats
    for is_two_level in (False, True)
]
EVALUATOR = chains, epilogue
TILED = loads, operand_feed, products, promotion, tile_epilogue
ASCEND = cube_kernel, vector_epilogue, join_ops
DEVICES = ("h200", "b200", "a100", "mi300x", "v100", "ascend910a", "ascend910b3")


def record(device: str, a: dict[str, Any] | None = None, b: dict[str, Any] | None = None) -> Gemm:
    """The mapped record of an fp16 product, its operands changed afterwards."""
    gemm = hwsim.run(device=device, format="fp16", exact=False, **SIZES).gemm
    problem = gemm.problem
    operands = replace(problem.a, **(a or {})), replace(problem.b, **(b or {}))
    return replace(gemm, problem=replace(problem, a=operands[0], b=operands[1]))


def test_plain_operands_are_written_as_they_always_were() -> None:
    """Files of older versions, and digests, stay what they are."""
    gemm = hwsim.run(device="h200", format="fp16", exact=False, b_layout="columns", **SIZES).gemm
    assert gemm.to_dict()["problem"] == {"is": "Problem", "input_format": "fp16", **SIZES, "b_layout": "columns"}
    again = Gemm.from_dict(json.loads(gemm.to_json()))
    assert again.problem == gemm.problem and again.digest == gemm.digest
    assert gemm.problem.b == OperandDescription("fp16", "columns")


def test_every_field_of_a_plain_problem_is_written_by_its_former_name() -> None:
    """Of which the digest is made."""
    problem = Problem.of("fp16", 64, 48, 64, (2,), a_layout="columns", has_c=True, bias="fp32")
    written = {"is": "Problem", "input_format": "fp16", "m": 64, "n": 48, "k": 64, "lead": [2]}
    written |= {"a_layout": "columns", "has_c": True, "bias": "fp32"}
    assert codec.encode(problem) == written
    assert problem.short_form == PlainProblem("fp16", 64, 48, 64, (2,), "columns", "rows", True, "fp32")
    assert problem.short_form.full_form == problem


@pytest.mark.parametrize("scale", EVERY_SCALE, ids=str)
def test_scales_go_into_a_file_and_back(scale: OperandScale) -> None:
    gemm = record("h200", {"scale": scale}, {"layout": "columns"})
    data = json.loads(gemm.to_json())
    assert data["problem"]["a"]["scale"]["is"] == "OperandScale" and "input_format" not in data["problem"]
    assert Gemm.from_dict(data) == gemm and gemm.digest != record("h200").digest


@pytest.mark.parametrize(
    "changed", [({"sparsity": "2:4"}, {}), ({}, {"format": "bf16"}), ({}, {"scale": OperandScale("fp32")})]
)
def test_each_field_of_an_operand_is_in_the_digest(changed: tuple[dict[str, Any], dict[str, Any]]) -> None:
    gemm = record("h200", *changed)
    assert Gemm.from_dict(json.loads(gemm.to_json())) == gemm and gemm.digest != record("h200").digest


def test_granularities_have_a_kind_and_formats_that_exist() -> None:
    for (rows, k), (kind, formats) in SCALES.items():
        assert all(format_of(name).name == name for name in formats)
        assert {OperandScale(name, rows, k).kind for name in formats} == {kind}
    assert {kind for kind, _ in SCALES.values()} == refusals.SUMS | refusals.ALONG_K


def test_a_problem_of_plain_operands() -> None:
    problem = Problem.of("e4m3", 2, 3, 4, b_layout="columns")
    assert (problem.input_format, problem.a_layout, problem.b_layout) == ("e4m3", "rows", "columns")
    assert (
        problem.a is plain_operand("e4m3", "rows") and problem.a.is_plain and problem.operands == (problem.a, problem.b)
    )
    assert problem.with_format("e5m2") == Problem.of("e5m2", 2, 3, 4, b_layout="columns")
    assert problem.with_layouts(a="columns") == Problem.of("e4m3", 2, 3, 4, a_layout="columns", b_layout="columns")
    assert problem.with_layouts(b="rows") == Problem.of("e4m3", 2, 3, 4)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("a", "format"), "fp17", r"problem\.a\.format: .*fp17"),
        (
            ("b", "scale"),
            codec.encode(OperandScale("ue8m0", 1, 64)),
            r"b\.scale: rows = 1 and k = 64; allowed: rows = ",
        ),
        (("a", "scale"), codec.encode(OperandScale("fp32", 1, 32)), r"a\.scale\.format = 'fp32'; allowed: 'ue8m0'"),
        (("a", "sparsity"), "1:2", r"problem\.a\.sparsity: str '1:2'; allowed: .*2:4"),
        (("k",), 66, r"problem\.b\.sparsity: 2:4 of K = 66; allowed: multiples of 4"),
        (("input_format",), "fp16", "Problem has no 'input_format'; it has a, b"),
    ],
)
def test_operands_of_a_file_edited_by_hand(path: tuple[str, ...], value: Any, message: str) -> None:
    data = record("h200", {}, {"sparsity": "2:4"}).to_dict()
    del data["digest"]
    inner = data["problem"]
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(InputError, match=message):
        Gemm.from_dict(data)


ASKED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    *(({"scale": scale}, {}, rf"scales of A \({scale}\)") for scale in EVERY_SCALE),
    ({}, {"scale": OperandScale("ue8m0", 1, 32)}, r"scales of B \(1 x 32 of ue8m0\)"),
    ({"sparsity": "2:4"}, {}, "2:4 sparsity of A"),
    ({}, {"sparsity": "2:4"}, "2:4 sparsity of B"),
    ({}, {"format": "bf16"}, r"operands of two formats \(fp16 and bf16\)"),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("a", "b", "name"), ASKED, ids=[name for _, _, name in ASKED])
def test_programs_and_bits_of_other_operands_are_refused_by_name(
    device: str, a: dict[str, Any], b: dict[str, Any], name: str
) -> None:
    """A record that hwsim would have to compute as if its operands were plain."""
    chip, gemm = load(device), record(device, a, b)
    with pytest.raises(UnsupportedError, match=f"no {name}$"):
        dataflow(chip).map(replace(gemm, mapping=None), chip, {})
    with pytest.raises(UnsupportedError, match=f"no {name}$"):
        program_of(gemm, chip)
    with pytest.raises(UnsupportedError, match=f"the evaluator computes no {name}$"):
        Evaluator(gemm, chip)


def test_a_saved_record_of_scaled_operands_is_refused() -> None:
    gemm = record("h200", {"scale": OperandScale("ue8m0", 1, 32)})
    with pytest.raises(UnsupportedError, match=r"scales of A \(1 x 32 of ue8m0\).*bits were not asked for"):
        hwsim.run(gemm=gemm.to_dict(), exact=False)
    with pytest.raises(UnsupportedError, match=r"the evaluator computes no scales of A \(1 x 32 of ue8m0\)"):
        hwsim.run(gemm=gemm.to_dict())


@pytest.mark.parametrize(
    ("scale", "parts"),
    [
        (OperandScale("ue8m0", 1, 32), {loads, operand_feed, products}),
        (OperandScale("fp32", 1, 128), {loads, promotion}),
        (OperandScale("fp32", 1, None), {tile_epilogue}),
        (OperandScale("fp32"), {tile_epilogue}),
    ],
    ids=["vectors", "blocks", "rows", "tensor"],
)
def test_each_part_answers_for_what_it_would_have_to_do(scale: OperandScale, parts: set[Any]) -> None:
    """Scales by vectors are loaded and fed to the instruction, by blocks multiplied at promotion, others at the end."""
    gemm = record("b200", {"scale": scale})
    assert {part for part in TILED if part.refuses(gemm)} == parts
    assert mainloop.refuses(gemm) == ("" if parts == {tile_epilogue} else f"scales of A ({scale})")
    assert not any(part.refuses(record("b200")) for part in TILED)


def test_a_name_is_said_once() -> None:
    assert refusals.joined("a, b", "", "b, c", "a") == "a, b, c"


@pytest.mark.parametrize(
    ("row", "changes"),
    [
        ("| scales of vectors", [{"scale": OperandScale("ue8m0", 1, 32)}]),
        ("| 2:4 sparsity of A", [{"sparsity": "2:4"}]),
        ("| scales of blocks", [{"scale": OperandScale("fp32", 1, 128)}, {"scale": OperandScale("fp32", 128, 128)}]),
        ("| scales of rows", [{"scale": OperandScale("fp32", 1, None)}, {"scale": OperandScale("fp32")}]),
    ],
)
def test_the_page_names_the_parts_that_refuse(row: str, changes: list[dict[str, Any]]) -> None:
    page = (Path(__file__).parents[2] / "lab" / "docs" / "extending.md").read_text(encoding="utf-8")
    [line] = [line for line in page.splitlines() if line.startswith(row)]
    parts = {"evaluate": EVALUATOR, "tiled": TILED, "davinci": ASCEND}
    for change in changes:
        gemm = record("b200", change)
        refusing = [part.__name__ for family in parts.values() for part in family if part.refuses(gemm)]
        assert [f"{name.rpartition('.')[2]}.py" for name in refusing] == re.findall(r"\w+\.py", line)
