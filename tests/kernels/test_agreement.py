"""A slice of the long comparison in agreement.py, and that it would see a difference."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import agreement
import numpy as np
import pytest
from agreement import FP8, FP8_UNITS, MODELS, TASK_RESULTS, UNITS, TwoTerms, exhaustive_task, random_task, random_tasks

from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands


def first_of(model: str) -> str:
    return next(name for name, spec in UNITS.items() if spec.unit.model == model)


@pytest.mark.parametrize("model", MODELS)
def test_random_slice(model: str) -> None:
    assert random_task((first_of(model), 5)) == (model, TASK_RESULTS, 0)


@pytest.mark.covering("formats", "unit")
@pytest.mark.parametrize("formats", FP8)
@pytest.mark.parametrize("unit", FP8_UNITS)
def test_two_term_slice(unit: str, formats: tuple[str, str]) -> None:
    """First products of which one is zero and one a NaN or an infinity."""
    products = agreement.two_terms(unit, *formats).products
    last = len(products)
    special = next(index for index, product in enumerate(products) if product.kind != "finite")
    counts = [exhaustive_task((unit, *formats, at, at + 2)) for at in (0, special - 1)]
    for count in counts:
        assert count["results"] == 2 * 256 * 128
        assert count["scalar_results"] == 2 * last
        assert count["differ"] == count["scalar_differ"] == count["sampled_differ"] == 0
    assert counts[0]["pairs"] > 0


def test_two_term_table_is_complete() -> None:
    """Every finite product of two codes is one of the table, zero once: counted here from values."""
    table = TwoTerms(FP8_UNITS["fused 32 terms, F = 25"], "e4m3", "e5m2")
    magnitudes = {(s * t, e + f) for s, e in parts(4, 3, 7, 15) for t, f in parts(5, 2, 15, 31)}
    assert table.distinct == 2 * len({pair for pair in magnitudes if pair[0]}) + 1
    assert {product.kind for product in table.products} == {"finite", "infinity", "nan"}


def parts(exponent_bits: int, fraction_bits: int, bias: int, special: int) -> list[tuple[int, int]]:
    """(significand, exponent of its last place) of the finite magnitudes; e4m3's only NaN is all ones."""
    found = []
    for biased in range(1 << exponent_bits):
        for fraction in range(1 << fraction_bits):
            is_special = biased == special and (exponent_bits == 5 or fraction == (1 << fraction_bits) - 1)
            if not is_special:
                hidden = (1 << fraction_bits) if biased else 0
                found.append((hidden + fraction, max(biased, 1) - bias - fraction_bits))
    return found


def test_differences_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """One result in the reference, one bit of the unit, changed: both comparisons count them."""
    plain = reference.gemm

    def wrong(*arguments, **keywords):
        codes = plain(*arguments, **keywords)
        codes[0, 0] ^= 1
        return codes

    monkeypatch.setattr(reference, "gemm", wrong)
    assert random_task((first_of("fused"), 5))[2] == agreement.REPEATS
    name, formats = "fused 32 terms, F = 13, E8M13", ("e4m3", "e5m2")
    table = TwoTerms(replace(FP8_UNITS[name], fraction_bits=12), *formats)
    table.spec = replace(table.spec, unit=FP8_UNITS[name])
    monkeypatch.setattr(agreement, "two_terms", lambda *_: table)
    count = exhaustive_task((name, *formats, 700, 704))
    assert min(count["differ"], count["scalar_differ"], count["sampled_differ"]) > 0


def test_plan_of_random_tasks() -> None:
    """What is missing and no more, with seeds not used twice, every unit of a model among it."""
    tasks = random_tasks(["exact", "integer"], {"exact": {"results": 20 * TASK_RESULTS, "differ": 0}}, 1e5, 40)
    models = [UNITS[name].unit.model for name, _ in tasks]
    assert models.count("integer") == -(-100_000 // TASK_RESULTS)
    assert models.count("exact") == models.count("integer") - 20
    assert sorted(seed for _, seed in tasks) == list(range(40, 40 + len(tasks)))
    assert {name for name, _ in tasks} == {n for n, s in UNITS.items() if s.unit.model in ("exact", "integer")}


def test_summary_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    for results in (1, TASK_RESULTS + 1):
        options = f"agreement.py --models integer --results {results} --processes 1 --first-seed 7 --out {out}"
        monkeypatch.setattr(sys, "argv", options.split())
        assert agreement.main() == 0
    summary = json.loads(out.read_text())
    assert summary["counts"] == {"integer": {"results": 2 * TASK_RESULTS, "differ": 0}}
    assert summary["next_seed"] == 9
    assert json.loads(capsys.readouterr().out.split("}\n{")[0].rstrip() + "}")["next_seed"] == 8
    monkeypatch.setattr(sys, "argv", ["agreement.py", "--models", "exakt"])
    with pytest.raises(SystemExit):
        agreement.main()


def test_expected_codes_are_an_array_of_results() -> None:
    """The table's sums equal the plain reference on whole rows, not only on samples."""
    table = agreement.two_terms("fused 32 terms, F = 13, E8M13", "e5m2", "e5m2")
    for first in (1, len(table.products) // 2):
        x, y = table.codes[first]
        expected = [reference.dot(table.spec, DotOperands([x, u], [y, v], 0)) for u, v in table.codes]
        assert np.array_equal(table.sums(first), expected)
