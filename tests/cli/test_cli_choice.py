"""hwsim run --scheme auto, hwsim tune, hwsim sensitivity."""

from __future__ import annotations

import csv
import re

import pytest

SMALL = ("--m", "64", "--n", "96", "--k", "64")


def test_auto_tells_all_candidates(cli):
    done = cli("run", "--device", "ascend910a", "--scheme", "auto", "--error-target", "1e-5", *SMALL)
    assert done.code == 0
    lines = done.out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("choice: error at most 1e-05"))
    assert lines[at + 2].split()[0] == "egemm-tc" and "taken" in lines[at + 2]
    assert any("error above the target" in line for line in lines[at:])
    assert any("does not run" in line for line in lines[at:])


def test_auto_as_json(cli):
    words = ("run", "--device", "ascend910a", "--scheme", "auto", "--error-target", "1e-2", "--json", *SMALL)
    found = cli(*words).json
    choice = found["options"]["choice"]
    assert choice["candidates"][0]["scheme"] == found["scheme"] and choice["metric"] == "relative_frobenius"
    assert found["error"]["relative_frobenius"] <= 1e-2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--scheme", "auto"), "needs error_target"),
        (("--error-target", "1e-3"), "is for scheme='auto'"),
        (("--scheme", "auto", "--error-target", "0"), "a number above 0"),
        (("--scheme", "auto", "--error-target", "1e-3", "--k-group", "32"), "leave out k_group"),
        (("--scheme", "auto", "--error-target", "1e-30"), "the most accurate is"),
    ],
)
def test_auto_refused(refused, words, message):
    assert message in refused("run", "--device", "ascend910a", *words, *SMALL)


TUNE = ("tune", "--device", "ascend910a", "--scheme", "sgemm-cube", *SMALL, "--budget", "12")


def test_tune_prints_and_writes(cli, tmp_path):
    done = cli(*TUNE, "--csv", "all.csv")
    assert done.code == 0 and "wrote all.csv" in done.err
    assert done.out.startswith("verdict   the search stopped at its budget (--budget): none of the first 13 ")
    assert re.search(r"^searched +13 configurations timed, 0 not legal, of [\d,]{3,} combinations of", done.out, re.M)
    assert "eq11" in done.out and "the best with each tile" in done.out
    with (tmp_path / "all.csv").open() as file:
        rows = list(csv.DictReader(file))
    found = cli(*TUNE, "--json").json
    assert found["schema"] == "hwsim.tune/1" and len(found["points"]) == len(rows)
    seconds = [float(row["seconds"]) for row in rows if row["seconds"]]
    assert min(seconds) == seconds[0] == found["best"]["seconds"] <= found["default"]["seconds"]


def test_tune_by_a_formula_and_by_traffic(cli):
    found = cli(*TUNE, "--chooser", "eq11", "--json").json
    assert found["best"] == found["analytic"]["eq11"] and len(found["points"]) == 2
    assert found["default"]["cycles"] < found["best"]["cycles"]  # so the report must not call it the best
    rows = [line.split() for line in cli(*TUNE, "--chooser", "eq11").out.splitlines()]
    shares = {row[0]: float(row[-1]) for row in rows if row[1:2] == ["tile"] and not row[0].isdigit()}
    assert set(shares) == {"chosen", "default", "eq11"} and shares["default"] == 1 > shares["chosen"]
    moved = cli(*TUNE, "--objective", "traffic", "--json").json
    assert moved["best"]["hbm_bytes"] == min(x["hbm_bytes"] for x in moved["points"] if x["hbm_bytes"] is not None)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--objective", "joules"), "objective = 'joules'"),
        (("--chooser", "tlp"), "--chooser tlp"),
        (("--plot", "map.pdf"), "ends in .png"),
        (("--csv", "map.png", "--plot", "map.png"), "--csv and --plot both write map.png"),
        (("--csv", "nowhere/all.csv"), "there is no folder"),
        (("--m", "0"), "at least 1"),
    ],
)
def test_tune_refused(refused, words, message):
    assert message in refused(*TUNE, *words)


def test_tune_plot(cli, tmp_path):
    done = cli(*TUNE, "--plot", "map.png")
    if done.code == 2:
        assert "pip install matplotlib" in done.err and not (tmp_path / "map.png").exists()
    else:
        assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


def test_sensitivity(cli):
    of_ascend = cli("sensitivity", "--device", "ascend910a", "--scheme", "sgemm-cube", *SMALL, "--json").json
    words = ("sensitivity", "--device", "h200", "--format", "bf16", *SMALL)
    done, of_h200 = cli(*words), cli(*words, "--json").json
    assert done.code == 0 and "25.0 % less and more" in done.out
    for found in (of_ascend, of_h200):
        assert found["schema"] == "hwsim.sensitivity/1" and (found["m"], found["n"], found["k"]) == (64, 96, 64)
        moved = [x["moved"] for x in found["numbers"]]
        assert moved == sorted(moved, reverse=True) and moved[0] > 0
    assert of_h200["numbers"][0]["path"] in done.out


def test_sensitivity_refused(refused):
    assert "no device" in refused("sensitivity", "--device", "h20O", *SMALL)
    assert "--device" in refused("sensitivity", *SMALL)
