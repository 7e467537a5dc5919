"""Where two ways part, in the units' own terms: instructions, what they began with, errors against the exact sum."""

import math
from fractions import Fraction

import numpy as np
import pytest

import hwsim
from hwsim.cli import main
from hwsim.studies.diff import Difference, Variant, diff
from hwsim.studies.diff_units import MOST


def operands(seed: int, m: int = 3, n: int = 4, k: int = 67) -> tuple[np.ndarray, np.ndarray]:
    """fp16 codes from bit fields, finite, as fp16."""
    words = np.random.default_rng(seed).integers(0, 1 << 16, (m + n, k)).astype(np.uint16) & 0xBBFF
    values = words.view(np.float16)
    return values[:m], values[m:].T


def compared(left: Variant, right: Variant, **options: object) -> Difference:
    a, b = operands(1)
    return diff(a, b, left, right, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (Variant("h200"), Variant("v100")),
        (Variant("h200"), Variant("h200", schedule={"split_k": 2})),
        (Variant("h200"), Variant("b200", schedule={"promotion_k": 32})),
        (Variant("mi300x"), Variant("h200")),
        (Variant("h200", scheme="bf16x9"), Variant("a100", scheme="bf16x9")),
    ],
)
def test_the_steps_lead_to_the_codes_that_differ(left: Variant, right: Variant) -> None:
    """Each instruction begins with what the one before it gave, and computes what the device does."""
    found = compared(left, right)
    assert found.differing and found.step is not None
    for variant, steps in ((left, found.step.left_steps), (right, found.step.right_steps)):
        assert 0 < len(steps) <= MOST
        device = hwsim.device(variant.device)
        before: dict[tuple[int, int, int], str] = {}
        for step in steps:
            assert step.k_start < found.step.k_end and step.k_stop > found.step.k_first
            place = (step.term, step.slice)
            assert (*place, step.k_start) not in before or before[*place, step.k_start] == step.c
            before[*place, step.k_stop] = step.d
            a, b = (np.array([int(x, 16) for x in codes], np.uint16) for codes in (step.a, step.b))
            got = device.dot(step.instruction, a, b, np.array(int(step.c, 16), np.uint32))
            assert int(np.asarray(got).view(np.uint32)) == int(step.d, 16)


def test_a_single_chain_ends_with_the_running_sum() -> None:
    found = compared(Variant("h200"), Variant("v100"))
    step = found.step
    assert step is not None
    assert step.left_steps[-1].d == step.left_code and step.right_steps[-1].d == step.right_code
    assert step.left_steps[0].c == (step.last_equal or "0x00000000")


def test_errors_are_against_the_exact_sum() -> None:
    found = compared(Variant("h200"), Variant("v100"), element=(2, 1))
    a, b = operands(1)
    exact = sum(Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a[2], b[:, 1], strict=True))
    assert found.errors is not None and found.errors.exact == float(exact)
    c = hwsim.matmul(a, b, device="h200", format="fp16")
    assert found.errors.left == float((Fraction(float(c[2, 1])) - exact) / abs(exact))
    assert found.errors.left_code == f"0x{int(c.view(np.uint32)[2, 1]):08x}"


def test_nothing_is_said_of_what_is_no_number() -> None:
    a, b = operands(1)
    a = a.copy()
    a[0, 5] = np.inf
    found = diff(a, b, Variant("h200"), Variant("v100"), element=(0, 0))
    assert found.errors is not None and found.errors.exact is None and found.errors.left is None


def test_an_equal_element_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    size = ("--m", "4", "--n", "4", "--k", "40")
    assert main(["diff", "--device", "h200", "--device", "h100", "--format", "fp16", *size, "--element", "1,2"]) == 0
    assert "C[1, 2] is 0x" in capsys.readouterr().out


def test_the_command_shows_the_same_step(capsys: pytest.CaptureFixture[str]) -> None:
    step = compared(Variant("h200"), Variant("v100")).step
    assert step is not None
    one = step.right_steps[-1]
    assert main(one.command.split()[1:]) == 0
    assert one.d in capsys.readouterr().out
    assert math.isclose(one.d_value, step.right, rel_tol=1e-6)
