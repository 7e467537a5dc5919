"""Assumptions behind claims: their files, how a value is put in place, and what comes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hwsim.analysis import energy
from hwsim.cli import main
from hwsim.devices import load
from hwsim.errors import InputError
from hwsim.host.processes import WorkerGroup
from hwsim_lab.papers import assumptions, claims, influences, influences_text, reproduce, varied
from hwsim_lab.papers.assumptions import OTHER_SEED, Assumption, AssumptionFile, range_of_assumption
from hwsim_lab.papers.claims import PAPERS
from hwsim_lab.papers.experiment import Experiment, Found, Scale
from hwsim_lab.papers.varied import Variation, VariedRun

RATE = "links.GM_L1.request_bytes"


@pytest.mark.parametrize("paper", PAPERS)
def test_files_name_experiments_claims_and_numbers_that_there_are(paper: str) -> None:
    known = {one.name: one for one in reproduce.experiments(paper)}
    file = assumptions.read(paper)
    for one in file.assumptions:
        assert set(one.claims) <= set(known[one.experiment].claims), one.name
        found = range_of_assumption(one)
        assert found.others and found.value not in found.others, one.name
        if one.claims:
            assert all(claims.read(paper).claim(id).kind in assumptions.VARIED_KINDS for id in one.claims)
    assert all(claims.read(paper).claim(id).kind in assumptions.VARIED_KINDS for id in file.unmoved)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"device": "a100"}, "needs `device` and `number`, or `constant`"),
        ({"constant": "hwsim_lab.papers.rates:X"}, "needs `others`"),
        ({"device": "a100", "number": "x", "constant": "y:z"}, "needs `device` and `number`, or `constant`"),
    ],
)
def test_assumptions_that_are_not_whole(given: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Assumption.model_validate({"experiment": "x", "why": "y"} | given)


def test_a_number_that_is_published_is_no_assumption() -> None:
    with pytest.raises(InputError, match="not an assumed number"):
        range_of_assumption(Assumption(experiment="x", device="a100", number="cores", why="y"))
    with pytest.raises(InputError, match="no constant"):
        range_of_assumption(Assumption(experiment="x", constant="hwsim_lab.papers.rates:NONE", others=(1,), why="y"))
    with pytest.raises(InputError, match=r"no energy mac_pj\.fp64"):
        range_of_assumption(Assumption(experiment="x", device="a100", number="mac_pj.fp64", energy=True, why="y"))


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a variation changes in a process is put back."""
    monkeypatch.setattr(np.random, "default_rng", np.random.default_rng)
    monkeypatch.setattr(energy, "_file", energy._file)
    monkeypatch.setenv("HWSIM_CONFIG_PATH", "")
    yield


def test_a_device_file_with_another_number_is_found_first(kept: None, tmp_path: Path) -> None:
    before = load("ascend910a")
    one = Assumption(experiment="x", device="ascend910a", number=RATE, why="y")
    varied.put_in_place(Variation(one, 512), tmp_path)
    with pytest.warns(UserWarning, match="is taken from"):
        after = load("ascend910a")
    assert after.links["GM_L1"].request_bytes == 512 != before.links["GM_L1"].request_bytes
    assert after.links["GM_UB"] == before.links["GM_UB"] and after.cores == before.cores


def test_a_number_that_a_variant_inherits_follows_its_base(kept: None, tmp_path: Path) -> None:
    rate = load("a100").l2.bytes_per_second / 2
    varied.put_in_place(
        Variation(Assumption(experiment="x", device="a100", number="l2.bytes_per_second", why="y"), rate), tmp_path
    )
    with pytest.warns(UserWarning, match="is taken from"):
        assert load("a800").l2.bytes_per_second == rate


def test_an_energy_a_constant_and_operands(kept: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Assumption(experiment="x", device="gb200", number="mac_pj.bf16", energy=True, why="y")
    varied.put_in_place(Variation(one, 0.7), tmp_path)
    chip = energy.energies_of("gb200")
    assert {getattr(chip.mac_pj["bf16"], level) for level in energy.LEVELS} == {0.7}
    assert energy.energies_of("a100").mac_pj["bf16"].typical != 0.7
    monkeypatch.setattr(varied, "CONSTANT", (1,), raising=False)
    one = Assumption(experiment="x", constant="hwsim_lab.papers.varied:CONSTANT", others=({"a": [1, 2]},), why="y")
    varied.put_in_place(Variation(one, {"a": [1, 2]}), tmp_path)
    assert varied.CONSTANT == {"a": (1, 2)}  # type: ignore[attr-defined]
    expected = np.random.default_rng(7 + OTHER_SEED).random()
    varied.put_in_place(Variation(None, OTHER_SEED), tmp_path)
    assert np.random.default_rng(7).random() == expected


def test_a_run_in_a_process_of_its_own_leaves_this_one_alone() -> None:
    one = Assumption(experiment="chips", device="ascend910a", number="clock_mhz", others=(500.0,), why="y")
    with WorkerGroup() as group:
        run = varied.run_apart(group, "sgemm-cube", "chips", "quick", Variation(one, 500.0))
        refused = varied.run_apart(group, "sgemm-cube", "chips", "quick", Variation(one, -5.0))
    assert run.measured["table1-910a"] == {"fp16": pytest.approx(128, rel=0.03)}
    assert refused.refused and not refused.measured
    assert load("ascend910a").clock_mhz == 1000


IDS = ("sec3-2-3xtf32-run", "sec1-no-extra-operations", "sec2-2-products")


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Variation]:
    """Claims of three kinds that fail, of one experiment; what is run again is counted."""
    paper = "tf32-tf64"
    names = {id: list(claims.read(paper).claim(id).measured) for id in IDS}
    ran: list[Variation] = []

    def values(by: float) -> dict[str, dict[str, list[float]]]:
        return {id: {name: [by, -2 * by] for name in own} for id, own in names.items()}

    def again(group: WorkerGroup, paper: str, experiment: str, scale: Scale, variation: Variation) -> VariedRun:
        ran.append(variation)
        return VariedRun({}, "too slow") if variation.value == 1410.0 else VariedRun(values(1.5))

    package = SimpleNamespace(
        EXPERIMENTS=(Experiment("all", IDS, lambda scale: Found(values(1.0)), {"quick": 50, "full": 50}),),
        __file__=reproduce.PACKAGES[paper].__file__,
    )
    file = AssumptionFile(
        schema_version=1,
        assumptions=(
            Assumption(
                experiment="all", claims=(IDS[0],), device="a100", number="sustained_clock_mhz.tf32",
                others=(1000.0, 1410.0), why="the clock | under load",
            ),
        ),
    )  # fmt: skip
    monkeypatch.setenv("HWSIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(reproduce.PACKAGES, paper, package)
    monkeypatch.setattr(assumptions, "read", lambda paper: file)
    monkeypatch.setattr(varied, "run_apart", again)
    turned = {1.0: "fails", 1.5: "order"}
    monkeypatch.setattr(
        claims.Claim, "verdict", lambda claim, measured: turned[next(iter(measured.values()))[0]] if measured else ""
    )
    return ran


def test_claims_that_do_not_hold_are_run_with_other_values_once(planted: list[Variation]) -> None:
    found = reproduce.reproduce(["tf32-tf64"])
    assert influences.seconds_left(found, "quick") == 3 * 52
    first = influences.with_influences(found, "quick")
    assert [one.value for one in planted] == [OTHER_SEED, 1000.0, 1410.0]
    assert influences.seconds_left(found, "quick") == 0
    assert influences.with_influences(found, "quick") == first and len(planted) == 3
    time, accuracy, definition = (next(x for x in first.outcomes if x.claim.id == id) for id in IDS)
    (clock,) = time.influences
    assert clock.value == 1210 and [end.verdict for end in clock.others] == ["order", None]
    assert set(map(tuple, clock.others[0].moves.values())) == {(-0.5, 0.5)}  # -2 becomes -3
    assert clock.others[1].refused == "too slow"
    assert [one.name for one in accuracy.influences] == [influences.OPERANDS]
    assert not definition.influences and "definition" in definition.unmoved
    text = influences_text.table(first.outcomes)
    assert "| **order** |" in text and "refused: too slow" in text and "clock \\| under load" in text
    assert len(text.splitlines()) == 2 + 4


def test_what_costs_least_for_a_claim_is_varied_first_until_time_is_up(
    planted: list[Variation], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operands move one claim by one run, the clock one claim by two; a clock that ticks once a look ends it."""
    found = reproduce.reproduce(["tf32-tf64"])
    costs = {influences.OPERANDS: 52.0, "sustained_clock_mhz.tf32 of a100": 104.0}
    asked = list(influences._asked(found))
    names = [influences.OPERANDS if one.assumption is None else one.assumption.name for one in asked]
    assert dict(zip(names, (influences._cost(one, "quick") for one in asked), strict=True)) == costs
    monkeypatch.setattr(influences, "_asked", lambda found: asked[::-1])
    ticks = iter(range(100))
    monkeypatch.setattr(influences, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    assert influences.vary_cheapest(found, "quick", 0) == 3 and not planted
    assert influences.vary_cheapest(found, "quick", 2) == 2 and [one.value for one in planted] == [OTHER_SEED]
    assert influences.vary_cheapest(found, "quick", 50) == 0 and [one.value for one in planted[1:]] == [1000.0, 1410.0]
    assert influences.vary_cheapest(found, "quick", 50) == 0 and len(planted) == 3


def test_the_command_says_how_long_and_gives_assumptions_as_json(
    planted: list[Variation], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "tf32-tf64", "--sensitivity", "--out", str(tmp_path / "out")]) == 0
    out, err = capsys.readouterr()
    assert "about 3 minutes for the assumptions" in err and "sustained_clock_mhz.tf32 of a100" in out
    assert "sustained_clock_mhz.tf32 of a100" in (tmp_path / "out" / "tf32-tf64.md").read_text()
    rows = {row["id"]: row for row in json.loads((tmp_path / "out" / "claims.json").read_text())}
    own = rows[f"tf32-tf64/{IDS[0]}"]["assumptions"]
    assert own[0]["others"][0]["verdict"] == "order" and own[0]["others"][1]["refused"] == "too slow"
    assert main(["reproduce", "cycles", "--sensitivity"]) == 2


def test_changes_of_series_zeros_and_other_lengths() -> None:
    nan = float("nan")
    before = {"x": 2.0, "s": [1.0, -4.0], "z": 0, "other": [1.0], "nan": nan}
    after = {"x": 1.0, "s": [2.0, -4.0], "z": 0, "other": [1.0, 2.0], "nan": 1.0}
    found = influences.moves(before, after)
    assert found["x"] == [-0.5, -0.5] and found["s"] == [0.0, 1.0] and found["z"] == [0.0, 0.0]
    assert "other" not in found


def test_one_experiment_by_name(planted: list[Variation], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "tf32-tf64", "experiment:all", "--json"]) == 0
    assert {row["id"].partition("/")[2] for row in json.loads(capsys.readouterr().out)["claims"]} == set(IDS)
    assert main(["reproduce", "tf32-tf64", "experiment:al"]) == 2
    assert "there are all; did you mean 'all'" in capsys.readouterr().err
