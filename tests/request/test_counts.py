"""One call of hwsim.run resolves once: planning, records and programs are counted.

One plan, one record and one program are made for a product call: also with a library, whose kernel's program it is, and
for a scheme through a library, whose products are kernels of one program. A search of a mapping lowers its candidates,
of one record and of some K; it is done once, and its programs are not counted. The program that it chose is not made
again, and it is checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

import hwsim
import hwsim.api
from hwsim.compute import call as compute_call
from hwsim.dataflows.tiled.dataflow import TiledDataflow
from hwsim.libraries import scheme_calls
from hwsim.resolve import mapping_choice, mapping_search, planning, resolver
from hwsim.resolve.choice import cost

pytestmark = pytest.mark.searches
SIZE = 256
MADE_ONCE = {"record_of": 1, "check": 1, "search": 1}  # the program by the search
#: What is counted: where a name is looked up when it is called.
COUNTED = {
    "resolve": (compute_call,),
    "plan_for": (resolver, scheme_calls, planning),
    "record_of": (resolver, cost),
    "check": (mapping_choice,),
}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often each function was called."""
    counts: Counter[str] = Counter()

    def counted(name: str, function):
        def wrapper(*given, **named):
            counts[name] += 1
            return function(*given, **named)

        return wrapper

    def counted_search(*given, **named):
        before = counts.copy()
        try:
            return search(*given, **named)
        finally:
            spent = counts - before
            counts.clear()
            counts.update(
                before | {"record_of": spent["record_of"] + before["record_of"], "search": before["search"] + 1}
            )

    search = mapping_search._fastest
    monkeypatch.setattr(mapping_search, "_fastest", counted_search)
    for name, modules in COUNTED.items():
        for module in modules:
            monkeypatch.setattr(module, name, counted(name, getattr(module, name)))
    monkeypatch.setattr(TiledDataflow, "lower", counted("lower", TiledDataflow.lower))
    for module in (hwsim, hwsim.api):
        monkeypatch.setattr(module, "run", counted("run", hwsim.api.run))
    for cache in (resolver._CACHE, mapping_search._CACHE, mapping_choice._PROGRAMS):
        cache.entries.clear()
    yield counts
    resolver._CACHE.entries.clear()


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param({"format": "fp16"}, id="native"),
        pytest.param({"format": "fp16", "library": "cublas"}, id="native through a library"),
        pytest.param({"scheme": "bf16x9", "library": "cublas"}, id="a scheme through a library"),
    ],
)
def test_one_call_resolves_once(calls: Counter[str], asked: dict[str, str]) -> None:
    rng = np.random.default_rng(0)
    dtype = np.float16 if "format" in asked else np.float32
    a, b = (rng.standard_normal((SIZE, SIZE)).astype(dtype) for _ in range(2))
    first = hwsim.run(a, b, device="h200", threads=1, **asked)
    assert first.cycles and first.seconds
    assert calls == {"run": 1, "resolve": 1, "plan_for": 1, **MADE_ONCE}
    calls.clear()
    again = hwsim.run(a, b, device="h200", threads=1, **asked)
    assert (again.result_sha256, again.seconds) == (first.result_sha256, first.seconds)
    planned = {"plan_for": 1} if "scheme" in asked else {}  # a library is asked for the calls of the scheme's plan
    assert calls == {"run": 1, "resolve": 1, **planned}


def test_a_kernel_whose_order_no_program_carries_has_one_record_too(calls: Counter[str]) -> None:
    sizes = {"m": 300, "n": 333, "k": 1001}
    result = hwsim.run(device="h200", library="cublas", format="fp16", exact=False, **sizes)
    assert result.gemm.schedule.remainder == "first" and result.cycles
    assert calls == {"run": 1, "resolve": 1, "plan_for": 1, **MADE_ONCE}


def test_a_kernel_of_cuda_cores_has_one_record_too(calls: Counter[str]) -> None:
    sizes = {"m": 209, "n": 491, "k": 1430}
    result = hwsim.run(device="h200", library="cublas", format="fp32", exact=False, **sizes)
    assert result.gemm.schedule.sum is not None and result.cycles
    assert calls == {"run": 1, "resolve": 1, "plan_for": 1, **MADE_ONCE}
