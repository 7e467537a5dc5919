"""`values` names the instructions that made an element, with the values that the program's execution has."""

from __future__ import annotations

import copy
import json
import shlex
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import hwsim
from hwsim.api import program as program_of
from hwsim.backend.cpu import CPU
from hwsim.cli.command import main
from hwsim.compute.bits import ExactValue
from hwsim.formats import code_dtype, format_of
from hwsim.machines import functional, reference
from hwsim.machines.element_steps import CodedValue, ElementStep
from hwsim.machines.element_values import ElementValues
from hwsim.operands.operand import Operand
from hwsim.program.executed import by_opcode

SIZES = ((48, 64, 96), (37, 29, 83))
GPUS = ("h200", "b200", "a100", "v100", "mi300x")
CASES: list[tuple[str, dict[str, Any]]] = [
    *((device, {"format": "fp16"}) for device in GPUS),
    *((device, {"scheme": scheme}) for device in GPUS for scheme in ("sgemm-cube", "le-gemm", "ootomo-fp16")),
    *((device, {"format": "bf16"}) for device in ("h200", "b200", "a100", "mi300x")),
    *((device, {"format": "tf32"}) for device in ("h200", "b200", "a100")),
    *((device, {"scheme": "tf32x3"}) for device in ("h200", "b200", "a100", "mi300x")),
    *((device, {"format": "e4m3"}) for device in ("h200", "b200")),
    *((device, {"scheme": "sgemm-cube"}) for device in ("ascend910a", "ascend910b3")),
    *((device, {"format": "fp16"}) for device in ("ascend910a", "ascend910b3")),
    ("ascend910b3", {"scheme": "le-gemm"}),
    *((device, {"format": "fp16", "split_k": 2}) for device in ("h200", "a100", "mi300x")),
    *((device, {"format": "fp16", "schedule": {"promotion_k": 32}}) for device in ("h200", "a100", "mi300x")),
    ("h200", {"format": "fp16", "output": "fp16"}),
    ("h200", {"format": "fp16", "alpha": 0.75}),
]


def operands(m: int, n: int, k: int, fmt: str | None) -> tuple[np.ndarray, np.ndarray, dict[str, str]]:
    rng = np.random.default_rng(m + n + k)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n)))
    if fmt != "e4m3":
        return a, b, {}
    codes = (hwsim.format_arrays.encode(x, fmt) for x in (a, b))
    return *codes, {"input_format": fmt}


def codes_of(values: CodedValue | tuple[CodedValue, ...]) -> np.ndarray:
    listed = values if isinstance(values, tuple) else (values,)
    return np.array([x.code for x in listed], code_dtype(format_of(listed[0].format)))


def check_chain(steps: tuple[ElementStep, ...], device: Any, added: tuple[CodedValue, ...] = ()) -> None:
    """Each matrix instruction gives what the device's instruction gives; each operand is what an earlier step left, or
    an element of C or the bias (`added`).
    """
    left: dict[tuple[Any, ...], CodedValue] = {}
    results = set(added)
    for step in steps:
        is_global = "[" not in step.place
        where = (step.place,) if is_global else (step.kernel, step.core, step.place)
        assert step.before == left.get(where)
        if step.opcode == "mma":
            a, b, c = (codes_of(step.operands[role]) for role in ("a", "b", "accumulator"))
            d = device.dot(step.instruction, a, b, c[0], scale_d=step.scale_d)
            assert int(d) == step.after.code, step
            assert step.operands["accumulator"] == step.before or c[0] == 0
        else:
            assert all(operand in results for operand in step.operands.values()), step
        if step.opcode == "copy":
            assert step.operands["source"] == step.after
        left[where] = step.after
        results.add(step.after)


@pytest.mark.covering("sizes", ("device", "options"))
@pytest.mark.parametrize("sizes", SIZES, ids=["whole", "ragged"])
@pytest.mark.parametrize(("device", "options"), CASES, ids=[f"{device} {options}" for device, options in CASES])
def test_the_steps_lead_to_the_element(device: str, options: dict[str, Any], sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    a, b, formats = operands(m, n, k, options.get("format"))
    places = [(0, 0), (m - 1, n - 1), (m // 2, n // 3)]
    result = hwsim.run(a, b, device=device, values=places, timing=False, threads=1, **options, **formats)
    assert result.by_program and list(result.values) == places
    assert result.result_sha256 == hwsim.run(a, b, device=device, timing=False, **options, **formats).result_sha256
    chip = hwsim.device(device)
    for place, steps in result.values.items():
        assert steps[-1].after.code == result.codes[place]
        check_chain(steps, chip)
    assert result.executed["mma"] > 0


@pytest.mark.parametrize(
    ("device", "options"),
    [
        ("h200", {"format": "fp16"}),
        ("a100", {"scheme": "tf32x3"}),
        ("b200", {"scheme": "bf16x9"}),
        ("mi300x", {"scheme": "sgemm-cube"}),
    ],
)
def test_c_and_bias(device: str, options: dict[str, Any]) -> None:
    m, n, k = 37, 29, 83
    a, b, _ = operands(m, n, k, None)
    rng = np.random.default_rng(8)
    c, bias = rng.standard_normal((m, n)).astype(np.float32), rng.standard_normal(n).astype(np.float32)
    chip = hwsim.device(device)
    for more in ({"c": c, "alpha": 0.75, "beta": -1.25}, {"bias": bias}, {"c": c, "bias": bias}, {}):
        given = {**options, **more}
        result = hwsim.run(a, b, given.pop("c", None), device=device, values=[(0, 0), (30, 20)], timing=False, **given)
        plain = hwsim.run(a, b, more.get("c"), device=device, timing=False, **given)
        assert result.result_sha256 == plain.result_sha256
        for (row, col), steps in result.values.items():
            assert steps[-1].after.code == result.codes[row, col]
            added = [more[name][at] for name, at in (("c", (row, col)), ("bias", col)) if name in more]
            check_chain(steps, chip, tuple(CodedValue("fp32", int(x.view(np.uint32))) for x in added))


@pytest.mark.parametrize("scheme", ["native", "bf16x9"])
def test_places_in_a_stack_that_one_program_computes(scheme: str) -> None:
    rng = np.random.default_rng(9)
    a, b = (rng.standard_normal((2, 3, *shape)).astype(np.float32) for shape in ((20, 40), (40, 24)))
    asked = [(1, 2), (0, 0, 1, 2), (1, 0, 19, 23), (1, 2, 0, 7)]
    result = hwsim.run(a, b, device="b200", scheme=scheme, values=asked, timing=False)
    ends = [steps[-1].after.code for steps in result.values.values()]
    assert ends == [result.codes[at] for at in ((0, 0, 1, 2), *asked[1:])]
    for steps in result.values.values():
        check_chain(steps, hwsim.device("b200"))


def test_the_operands_are_the_row_and_the_column_in_order_of_k() -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((37, 83), (83, 29)))
    for device in GPUS:
        for row, col in ((0, 0), (36, 28), (20, 7)):
            steps = hwsim.run(a, b, device=device, values=[(row, col)], timing=False).values[row, col]
            of_mma = [step for step in steps if step.opcode == "mma"]
            left = np.concatenate([codes_of(step.operands["a"]) for step in of_mma])
            right = np.concatenate([codes_of(step.operands["b"]) for step in of_mma])
            assert left[:83].tolist() == a[row].view(np.uint16).tolist() and not left[83:].any()
            assert right[:83].tolist() == b[:, col].view(np.uint16).tolist() and not right[83:].any()


def test_every_element_of_a_small_product() -> None:
    a, b, _ = operands(8, 8, 40, None)
    places = [(row, col) for row in range(8) for col in range(8)]
    result = hwsim.run(a, b, device="a100", scheme="le-gemm", values=places, timing=False)
    assert [[steps[-1].after.code for steps in result.values.values()]] == [result.codes.ravel().tolist()]


def test_places_in_a_stack() -> None:
    rng = np.random.default_rng(6)
    a, b = (rng.standard_normal((3, *shape)).astype(np.float32) for shape in ((20, 40), (40, 24)))
    asked = [(1, 2), (0, 1, 2), (2, 19, 23)]
    result = hwsim.run(a, b, device="ascend910a", scheme="sgemm-cube", values=asked)
    ends = [steps[-1].after.code for steps in result.values.values()]
    assert ends == [result.codes[0, 1, 2], result.codes[0, 1, 2], result.codes[2, 19, 23]]
    with pytest.raises(hwsim.InputError, match=r"values: \(3, 0, 0\); allowed: indices below \(3, 20, 24\)"):
        hwsim.run(a, b, device="ascend910a", values=[(3, 0, 0)])


def test_infinities_and_nans() -> None:
    a, b, _ = operands(16, 16, 32, None)
    a[0, 3], a[1, 4], b[4, 1] = np.inf, np.inf, 0.0
    for device in ("h200", "ascend910a"):
        result = hwsim.run(a, b, device=device, format="fp16", values=[(0, 0), (1, 1), (2, 2)], timing=False)
        assert [steps[-1].after.code for steps in result.values.values()] == [result.codes[i, i] for i in range(3)]


def test_the_printed_command_gives_the_step(capsys: pytest.CaptureFixture[str]) -> None:
    for device, options in (("b200", {"scheme": "tf32x3"}), ("v100", {"format": "fp16"}), ("h200", {"format": "fp16"})):
        a, b, _ = operands(16, 16, 40, None)
        steps = hwsim.run(a, b, device=device, values=[(3, 5)], timing=False, **options).values[3, 5]
        of_mma = [step for step in steps if step.command is not None]
        for step in (of_mma[0], of_mma[-1]):
            assert main([*shlex.split(step.command)[1:], "--json"]) == 0
            assert json.loads(capsys.readouterr().out)["result"]["code"] == step.after.hex
    assert all(step.command is None for step in steps if step.opcode != "mma")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([(0, 64)], "allowed: indices below"),
        ([(0,)], "1 to 64 pairs"),
        ([(0, -1)], "1 to 64 pairs"),
        ([(0, 1.5)], "an integer"),
        ([], "1 to 64 pairs"),
        ("0,0", "1 to 64 pairs"),
        ([(0, i) for i in range(65)], "1 to 64 pairs"),
        (3, "1 to 64 pairs"),
    ],
)
def test_bad_places(values: Any, said: str) -> None:
    with pytest.raises(hwsim.InputError, match=f"values.*{said}"):
        hwsim.run(m=64, n=64, k=64, device="h200", values=values)


@pytest.mark.parametrize(("options", "said"), [({"functional": False}, "functional"), ({"exact": False}, "exact")])
def test_options_that_forbid_a_program(options: dict[str, Any], said: str) -> None:
    with pytest.raises(hwsim.InputError, match=f"values: .*{said}"):
        hwsim.run(m=16, n=16, k=16, device="h200", values=[(0, 0)], **options)


def test_places_are_those_of_the_whole_product() -> None:
    """The program computes all of it, also where the result shows a part."""
    part = hwsim.run(m=16, n=16, k=16, device="h200", values=[(5, 3)], rows=[5, 7])
    whole = hwsim.run(m=16, n=16, k=16, device="h200", values=[(5, 3)])
    assert part.values == whole.values and part.c.tolist() == whole.c[[5, 7]].tolist()
    assert float(part.values[5, 3][-1].after) == part.c[0, 3]


def test_executed_counts_what_one_at_a_time_execution_executes(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()
    execute = reference._Core._execute

    def counted(self: Any, instr: Any, values: Any) -> None:
        counts[instr.opcode] += 1
        execute(self, instr, values)

    monkeypatch.setattr(reference._Core, "_execute", counted)
    m, n, k = 64, 64, 32
    a, b, _ = operands(m, n, k, None)
    for device, scheme in (("a100", "le-gemm"), ("ascend910a", "sgemm-cube")):
        chip, program = program_of(device=device, scheme=scheme, m=m, n=n, k=k)
        counts.clear()
        inputs = {name: x.view(np.uint32) for name, x in zip(program.inputs, (a, b), strict=True)}
        reference.run(program, chip, inputs, dots=CPU.gemm)
        assert by_opcode(program) == dict(counts)
        assert hwsim.run(a, b, device=device, scheme=scheme, functional=True).executed == dict(counts)
    assert hwsim.run(a, b, device="h200").executed is None


def test_an_output_that_the_steps_do_not_leave_is_an_error() -> None:
    chip, program = program_of(device="h200", format="fp16", m=16, n=16, k=32)
    rng = np.random.default_rng(7)
    inputs = {
        name: rng.standard_normal(size).astype(np.float32).view(np.uint32)
        for name, size in zip(program.inputs, ((16, 32), (32, 16)), strict=True)
    }
    followed = ElementValues(program, chip, [(2, 3)], CPU)
    before = copy.deepcopy(inputs)
    out = functional.run(program, chip, inputs, before_kernel=followed.before_kernel)
    assert all(np.array_equal(before[name], inputs[name]) for name in inputs)
    assert followed.checked(out)[0][-1].after.code == out[2, 3]
    out[2, 3] ^= 1
    with pytest.raises(hwsim.MismatchError, match=r"values: .*\(2, 3\)"):
        followed.checked(out)


def test_plain_data_and_text(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "--device", "h200", "--m", "16", "--n", "16", "--k", "32", "--format", "fp16", "-q"]
    assert main([*words, "--values", "0,0;3,5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["element"] for one in found["values"]] == [[0, 0], [3, 5]]
    last = found["values"][1]["steps"][-1]
    assert (last["opcode"], last["place"]) == ("copy", "C (3, 5)")
    assert found["executed"]["mma"] > 0
    assert main([*words, "--values", "0,0;3,5"]) == 0
    text = capsys.readouterr().out
    assert "C[3, 5]: " in text and last["after"]["code"] in text
    assert text.count("\n  result ") == 2 and text.count("\n  exact, of A and B as rounded  ") == 2
    assert last["after"]["value"] == pytest.approx(found["values"][1]["exact_of_rounded"], rel=1e-6)
    assert last["after"]["value"] != pytest.approx(found["values"][1]["exact"], rel=1e-6)
    assert found["values"][1]["steps"][0]["command"] in text
    assert main([*words, "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["values"] is None and plain["executed"] is None


def test_the_exact_value_stands_beside_an_element() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((2, 8, 16)).astype(np.float16), rng.standard_normal((16, 8)).astype(np.float16)
    c, bias = rng.standard_normal((2, 8, 8)).astype(np.float32), rng.standard_normal(8).astype(np.float32)
    epilogue = {"c": c, "bias": bias, "alpha": 0.5, "beta": 2.0}
    result = hwsim.run(a, b, device="h200", values=[(1, 2, 3), (0, 1)], timing=False, **epilogue)
    for name, (matrix, row, col) in (((1, 2, 3), (1, 2, 3)), ((0, 1), (0, 0, 1))):
        products = (Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a[matrix, row], b[:, col], strict=True))
        wanted = sum(products) / 2 + 2 * Fraction(float(c[matrix, row, col])) + Fraction(float(bias[col]))
        assert result.exact_values[name] == ExactValue(wanted, wanted)
    a[1, 2, 0] = np.inf
    assert hwsim.run(a, b, device="h200", values=[(1, 2, 3)], timing=False).exact_values == {
        (1, 2, 3): ExactValue(None)
    }
    assert hwsim.run(a, b, device="h200", values=[(0, 1)], rows=slice(0, 4), timing=False).exact_values == {}


def test_the_exact_value_of_an_element_decodes_one_element_of_c(monkeypatch: pytest.MonkeyPatch) -> None:
    c = np.random.default_rng(3).standard_normal((8, 8)).astype(np.float32)
    result = hwsim.run(np.zeros((8, 4), np.float32), np.ones((4, 8), np.float32), c=c, device="h200", values=[(7, 5)])
    decoded: list[int] = []
    values = Operand.values

    def seen(operand: Operand, *more: Any) -> Any:
        decoded.append(operand.codes.size)
        return values(operand, *more)

    monkeypatch.setattr(Operand, "values", seen)
    assert result.exact_values == {(7, 5): ExactValue(Fraction(float(c[7, 5])), Fraction(float(c[7, 5])))}
    assert 1 in decoded and c.size not in decoded


def test_values_of_codes() -> None:
    assert CodedValue("fp16", 0x8000).value == 0.0 and np.signbit(CodedValue("fp16", 0x8000).value)
    assert CodedValue("int32", 0xFFFFFFFF).value == -1
    assert np.isnan(float(CodedValue("fp32", 0x7FC00000))) and float(CodedValue("fp32", 0xFF800000)) == -np.inf
    assert CodedValue("bf16", 0x3F80).hex == "0x3f80"
