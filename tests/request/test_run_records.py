"""The parts of a result are typed records that read by key as dictionaries do."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import re

import ml_dtypes
import numpy as np
import pytest

import hwsim
from hwsim.analysis.metrics import errors
from hwsim.analysis.run_records import EngineUse, ErrorNorms, Macs, Occupancy, Phase, ProductErrors
from hwsim.report.text.run_text import run_text

A = np.random.default_rng(0).standard_normal((48, 40))


@pytest.fixture(scope="module")
def result() -> hwsim.Result:
    a = A.astype(np.float16)
    return hwsim.run(a, np.ascontiguousarray(a.T), device="h200", format="fp16")


def test_every_part_is_a_record(result: hwsim.Result) -> None:
    assert [type(x) for x in result.phases] == [Phase] * len(result.phases) and result.phases
    assert {type(x) for x in result.engines.values()} == {EngineUse} and type(result.macs) is Macs
    assert {type(x) for x in result.occupancy} == {Occupancy}
    assert type(result.error) is ProductErrors and type(result.error.baseline) is ErrorNorms


def test_fields_and_keys_are_the_same(result: hwsim.Result) -> None:
    for record in (result.phases[0], next(iter(result.engines.values())), result.macs, result.occupancy[0]):
        names = [field.name for field in dataclasses.fields(record) if getattr(record, field.name) is not None]
        assert list(record) == names and len(record) == len(names)
        assert {name: getattr(record, name) for name in names} == record == dict(record)
        assert json.loads(json.dumps(record)) == record and repr(record) == repr(dict(record))
        for other in (copy.copy(record), copy.deepcopy(record), pickle.loads(pickle.dumps(record))):
            assert other == record and type(other) is type(record)


def test_errors_read_as_before(result: hwsim.Result) -> None:
    error = result.error
    assert error is not None and set(error) == {"relative_frobenius", "max_relative", "baseline", "worst"}
    assert error["baseline"]["max_relative"] == error.baseline.max_relative
    assert "rows" not in error and error.rows is None and error.get("rows") is None
    sampled = ProductErrors(1e-3, 2e-3, ErrorNorms(1e-4, 2e-4), 7)
    assert sampled["rows"] == 7 and {**sampled} == dict(sampled)
    assert json.loads(result.to_json())["error"] == error


@pytest.mark.parametrize("change", ["x['useful'] = 1", "x.useful = 1", "del x['useful']", "x.pop('useful')"])
def test_a_record_is_not_changed(change: str) -> None:
    x = Macs(3, 4)
    with pytest.raises((TypeError, dataclasses.FrozenInstanceError)):
        exec(change, {"x": x})
    assert x == {"useful": 3, "padded": 4} and (x | {"useful": 1}) == {"useful": 1, "padded": 4}


def test_a_result_without_times_has_empty_parts() -> None:
    bits = hwsim.run(A.astype(np.float32), A.T.astype(np.float32), device="h200", timing=False)
    assert (bits.phases, bits.engines, bits.macs, bits.occupancy) == ([], {}, {}, [])


def test_rounding_of_the_inputs_is_apart_from_the_arithmetic() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((40, 96), np.float32), rng.standard_normal((96, 24), np.float32)
    short = [x.astype(ml_dtypes.bfloat16).astype(np.float64) for x in (a, b)]
    exact, rounded = a.astype(np.float64) @ b.astype(np.float64), short[0] @ short[1]
    for options in ({}, {"functional": True}, {"bias": np.arange(24.0), "alpha": 2.0}):
        result = hwsim.run(a, b, device="h200", format="bf16", **options)
        error, added = result.error, options.get("bias", 0.0)
        wanted = [options.get("alpha", 1.0) * x + added for x in (exact, rounded)]
        assert error.input_rounding == pytest.approx(errors(*wanted))
        assert error.arithmetic == pytest.approx(errors(wanted[1], result.c))
        assert error.relative_frobenius == pytest.approx(errors(wanted[0], result.c).relative_frobenius)
    for call in ({"format": "bf16", "input_format": "bf16"}, {"scheme": "bf16x9"}, {}):
        error = hwsim.run(m=16, n=16, k=32, device="h200", **call).error
        assert error.input_rounding is None and "arithmetic" not in error
    text = run_text(hwsim.run(m=16, n=16, k=32, device="h200", format="bf16"))
    assert re.search(r"norm .*\n +input rounding to bf16 .* none\n +arithmetic +\d", text)
