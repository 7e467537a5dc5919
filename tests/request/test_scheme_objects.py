"""A scheme's object carries options: of hwsim's own schemes, and of one that hwsim has never heard of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import hwsim
from hwsim.errors import InputError
from hwsim.frameworks.settings import settings_of
from hwsim.gemm.option_types import Option
from hwsim.gemm.plan import Piece, Plan, Term, TermValue, chain, sums
from hwsim.gemm.problem import Problem
from hwsim.request.options import sort_by_owner
from hwsim.schemes import Scheme, scheme_of

A, B = (np.random.default_rng(x).standard_normal((32, 32)).astype(np.float32) for x in (1, 2))


def _plan(options: Mapping[str, Any], problem: Problem) -> Plan:
    """As many equal products as `products` says, added up."""
    piece, count = (Piece("bf16"),), options["products"]
    terms: tuple[Term, ...] = tuple(chain((0, 0)) for _ in range(count))
    total = sums(*map(TermValue, range(count)))
    return Plan("many", piece, piece, terms, total, input_format=problem.input_format)


MANY = Scheme(
    "many",
    "a product several times",
    "this test",
    (Option("products", int, 2, "how many products are added", least=1, most=8),),
    _plan,
    lambda a, b, options: [],
)


def many(*, products: int = 2) -> Scheme:
    """The scheme with its options, which a type checker reads here."""
    return MANY(products=products)


def test_an_option_that_hwsim_does_not_know_travels_in_the_object() -> None:
    four = hwsim.run(A, B, device="h200", scheme=many(products=4), timing=False)
    assert four.options["products"] == 4 and four.gemm.single.products == 4
    by_name = hwsim.run(A, B, device="h200", scheme=MANY, timing=False, products=4)
    assert four.result_sha256 == by_name.result_sha256
    two = hwsim.run(A, B, device="h200", scheme=many(), timing=False)
    assert two.gemm.single.products == 2 and two.result_sha256 != four.result_sha256
    assert hwsim.matmul(A, B, device="h200", scheme=many(products=4)).tobytes() == four.c.tobytes()


def test_a_record_is_run_again_with_the_object() -> None:
    four = hwsim.run(A, B, device="h200", scheme=many(products=4), timing=False)
    again = hwsim.run(A, B, scheme=many(products=4), gemm=four.gemm, timing=False)
    assert again.result_sha256 == four.result_sha256


def test_hwsims_own_schemes_carry_options_too() -> None:
    native = scheme_of("native")
    for call in ({"scheme": native(format="bf16")}, {"scheme": "native", "format": "bf16"}):
        assert hwsim.run(A, B, device="h200", timing=False, **call).options["format"] == "bf16"
    with hwsim.emulate(device="h200", scheme=native(format="bf16")):
        product = np.matmul(A, B)
    assert product.tobytes() == hwsim.matmul(A, B, device="h200", format="bf16").tobytes()


def test_settings_of_frameworks_tell_objects_apart() -> None:
    keys = [
        settings_of({"device": "h200", **call}).key
        for call in (
            {"scheme": many(products=4)},
            {"scheme": many(products=3)},
            {"scheme": MANY, "products": 4},
        )
    ]
    assert keys[0] == keys[2] != keys[1]


def test_an_object_is_checked_when_it_is_made() -> None:
    with pytest.raises(InputError, match="scheme many has no option 'product'; it has products"):
        MANY(product=3)
    with pytest.raises(InputError, match="products = 9; allowed: an integer of at least 1 and at most 8"):
        many(products=9)
    assert MANY.values == {} and many(products=3)(products=4).values == {"products": 4}


def test_an_option_is_given_once() -> None:
    with pytest.raises(InputError, match="products: the object of scheme many says it, too; leave one out"):
        hwsim.run(A, B, device="h200", scheme=many(products=4), products=3)
    with pytest.raises(InputError, match="format: the object of scheme native says it, too"):
        hwsim.run(A, B, device="h200", scheme=scheme_of("native")(format="bf16"), format="fp16")


def test_objects_with_equal_options_share_what_was_resolved() -> None:
    """The scheme itself resolves, not the object, so that a loop which makes objects is not slower."""
    options = sort_by_owner({}, many(products=4))
    assert options.of_scheme == {"products": 4} and many(products=4).bare is MANY
