"""A program gives its bits alone: nothing of the evaluator is called while it runs, and nothing of it is imported."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import hwsim
from hwsim.compute import bits
from hwsim.devices import load
from hwsim.machines import functional
from hwsim.resolve.mapping_choice import program_of

EVALUATOR = Path(inspect.getfile(hwsim)).parent / "evaluate"
#: What runs a program: no module of these rooms may import the evaluator.
ROOMS = ("machines", "program", "arithmetic", "dataflows")
#: Functions of the evaluator that compute a product, or a part of one.
PRODUCTS = {"evaluate", "evaluate_plan", "evaluate_mixed", "product", "stack", "chain", "promoted", "pieces_of"}
CALLS: dict[str, dict[str, Any]] = {
    "native": {"format": "fp16"},
    "slices of K": {"format": "fp16", "split_k": 2},
    "terms": {"scheme": "sgemm-cube"},
    "runs": {"scheme": "ootomo-fp16"},
    "library": {"scheme": "bf16x9", "library": "cublas"},
    "several plans": {"scheme": "ape", "block": 16},
    "integers": {"scheme": "ozaki-int8"},
    "the rest of K first": {"format": "fp16", "schedule": {"remainder": "first", "tile_k": 32}},
}


def operands() -> tuple[Any, Any]:
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((40, 75)).astype(np.float32), rng.standard_normal((75, 32)).astype(np.float32)
    a[3, 3] *= np.float32(1e-20)
    return a, b


@contextmanager
def functions_called(of: Path) -> Iterator[set[str]]:
    """The names of functions in files below `of` that are called."""
    called: set[str] = set()

    def profile(frame: FrameType, event: str, given: Any) -> None:
        if event == "call" and Path(frame.f_code.co_filename).parent == of:
            called.add(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield called
    finally:
        sys.setprofile(before)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_machine_calls_nothing_of_the_evaluator(call: dict[str, Any]) -> None:
    a, b = operands()
    result = hwsim.run(a, b, device="h200", threads=1, **call)
    program, chip = program_of(result.gemm, load("h200")), load("h200")
    taken = result.gemm.single.input_format
    codes = [x.view(np.uint32) if taken == "fp32" else x.astype(np.float16).view(np.uint16) for x in (a, b)]
    if taken == "fp64":
        codes = [x.astype(np.float64).view(np.uint64) for x in (a, b)]
    with functions_called(EVALUATOR) as called:
        out = functional.run(program, chip, dict(zip(program.inputs, codes, strict=True)))
    assert called == set()
    assert out.tobytes() == np.asarray(result.c).tobytes()


@pytest.mark.covering("by_program", "call")
@pytest.mark.parametrize("by_program", [True, False])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_functional_run_evaluates_no_product(
    call: dict[str, Any], by_program: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Around the machine, the evaluator converts C and looks at blocks; a run by the evaluator does more."""
    a, b = operands()
    found: set[str] = set()
    compute = bits.compute

    def watched(*given: Any, **named: Any) -> Any:
        with functions_called(EVALUATOR) as called:
            product = compute(*given, **named)
        found.update(called)
        return product

    monkeypatch.setattr("hwsim.api.compute", watched)
    c = None if "library" in call else np.ones((40, 32), np.float32)
    hwsim.run(a, b, c, device="h200", threads=1, functional=by_program, **call)
    assert bool(found & PRODUCTS) is not by_program


def test_the_rooms_of_programs_import_nothing_of_the_evaluator() -> None:
    for room in ROOMS:
        for path in (EVALUATOR.parent / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                assert not any(name.startswith("hwsim.evaluate") for name in names), path
