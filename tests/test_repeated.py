"""Products that are resolved once per kind of operands have the bits of products that are asked for anew."""

from __future__ import annotations

import gc
import itertools
import threading
import weakref

import numpy as np
import pytest

import hwsim
import hwsim.frameworks.repeated
from hwsim.evaluate import chains
from hwsim.frameworks.repeated import Repeated

CHIP = hwsim.device("h200")
FIXED = {"device": CHIP, "timing": False, "threads": 1}
RNG = np.random.default_rng(11)
A, B, C, BIAS = (RNG.standard_normal(shape).astype(np.float32) for shape in ((5, 160), (160, 3), (5, 3), (3,)))
#: Calls of which each differs from the first one, or from another, in one thing alone.
CALLS = {
    "first": (A, B, {}),
    "type of A": (A.astype(np.float64), B, {}),
    "type of B": (A, B.astype(np.float64), {}),
    "types of both": (A.astype(np.float16), B.astype(np.float16), {}),
    "rows of A": (A[:4], B, {}),
    "columns of B": (A, B[:, :2], {}),
    "K": (A[:, :96], B[:96], {}),
    "stack of A": (A[None], B, {}),
    "stack of B": (A, B[None], {}),
    "C": (A, B, {"c": C}),
    "C, beta": (A, B, {"c": C, "beta": 0.5}),
    "C, beta 0": (A, B, {"c": np.full_like(C, np.nan), "beta": 0.0}),
    "bias": (A, B, {"bias": BIAS}),
    "C and bias": (A, B, {"c": C, "bias": BIAS}),
    "alpha": (A, B, {"alpha": 3.0}),
    "alpha 0": (A, B, {"alpha": 0.0}),
    "alpha -0": (A, B, {"alpha": -0.0}),
    "output": (A, B, {"output": "bf16"}),
    "schedule": (A, B, {"split_k": 2}),
    "other values": (A * 7, B - 1, {}),
    "other values of C": (A, B, {"c": C + 1}),
    "other values of the bias": (A, B, {"bias": BIAS - 2}),
}


def expected(name, **more):
    a, b, varying = CALLS[name]
    return hwsim.matmul(a, b, **FIXED | more | varying)


@pytest.mark.parametrize("format", [None, "fp16", "tf32"])
def test_whatever_varies_the_bits_are_those_of_a_product_asked_for_anew(format):
    """Each call before and after each other one."""
    fixed = FIXED if format is None else FIXED | {"format": format}
    wanted = {name: expected(name, **fixed).tobytes() for name in CALLS}
    assert len(set(wanted.values())) > 12  # most calls can be told apart
    for pair in itertools.permutations(CALLS, 2):
        repeated = Repeated()
        for name in (*pair, *pair):
            a, b, varying = CALLS[name]
            assert repeated.product(a, b, fixed, varying)[0].tobytes() == wanted[name], (pair, name)


def test_each_variant_has_arguments_of_its_own():
    repeated, fixed = Repeated(), {fmt: FIXED | {"format": fmt} for fmt in ("fp16", "bf16")}
    for fmt in ("fp16", "bf16", "fp16", "bf16"):
        found, _ = repeated.product(A, B, fixed[fmt], {}, variant=fmt)
        assert found.tobytes() == expected("first", format=fmt).tobytes()
    assert len(repeated.ready) == 2


def test_layouts_of_a_library_s_call_are_of_its_kind():
    a, b = (RNG.standard_normal(shape).astype(np.float16) for shape in ((33, 4096), (4096, 40)))
    repeated, fixed = Repeated(), FIXED | {"library": "cublas", "format": "fp16"}
    found = {}
    for layout in ("rows", "columns") * 2:
        product, _ = repeated.product(a, b, fixed, {"b_layout": layout})
        assert product.tobytes() == hwsim.matmul(a, b, **fixed, b_layout=layout).tobytes()
        found[layout] = product.tobytes()
    assert len(repeated.ready) == 2
    for bias in (None, RNG.standard_normal(40)):
        product, _ = repeated.product(a, b, fixed, {"bias": bias})
        assert product.tobytes() == hwsim.matmul(a, b, **fixed, bias=bias).tobytes()
    assert len(repeated.ready) == 4  # a bias may change the kernel


@pytest.mark.parametrize("scheme", ["bf16x9", "le-gemm", "ootomo-fp16"])
def test_what_is_ready_holds_no_operands(scheme, monkeypatch):
    """Chains arrange the operands of many products for each call, and let them go with it."""
    arranged = []

    class Followed(chains.InstructionRuns):
        def __init__(self, *given):
            super().__init__(*given)
            arranged.append(weakref.ref(self))

    monkeypatch.setattr(chains, "InstructionRuns", Followed)
    device = {"bf16x9": "b200", "le-gemm": "a800"}.get(scheme, "h200")
    _, ready = hwsim.frameworks.repeated.prepared(A, B, device=device, scheme=scheme, timing=False)
    ready(A + 1, B)
    gc.collect()
    assert arranged and not any(one() for one in arranged)


def test_kinds_that_are_kept_are_bounded(monkeypatch):
    monkeypatch.setattr(hwsim.frameworks.repeated, "MOST_KINDS", 3)
    repeated = Repeated()
    for rows in (1, 2, 3, 4, 5, 1, 2, 5):
        found, _ = repeated.product(A[:rows], B, FIXED, {})
        assert found.tobytes() == hwsim.matmul(A[:rows], B, **FIXED).tobytes()
        assert len(repeated.ready) <= 3


def test_what_is_good_for_one_pair_of_operands_is_asked_for_anew(monkeypatch):
    """Part of a product, bits of a program, a scheme that looks at its operands."""
    asked, own = [], hwsim.frameworks.repeated.prepared
    monkeypatch.setattr(
        hwsim.frameworks.repeated, "prepared", lambda *given, **more: asked.append(1) or own(*given, **more)
    )
    for more in ({"rows": [2, 0]}, {"functional": True}, {"scheme": "ape"}):
        repeated, fixed = Repeated(), FIXED | more
        for factor in (1, 1e-6, 1e6):
            found, _ = repeated.product(A * np.float32(factor), B, fixed, {})
            assert found.tobytes() == hwsim.matmul(A * np.float32(factor), B, **fixed).tobytes()
    assert len(asked) == 9


def test_threads_share_what_is_ready():
    wanted, wrong = {name: expected(name).tobytes() for name in CALLS}, []
    repeated = Repeated()

    def work(seed):
        for name in np.random.default_rng(seed).choice(list(CALLS), 60):
            a, b, varying = CALLS[name]
            if repeated.product(a, b, FIXED, varying)[0].tobytes() != wanted[name]:
                wrong.append(name)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
