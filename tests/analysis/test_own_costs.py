"""Energy and area by a device file's own numbers, worked out by hand from what the run counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hwsim
from hwsim.analysis.area import area_of
from hwsim.analysis.energy import energy
from hwsim.cli import main
from hwsim.devices import load
from hwsim.errors import ConfigError, UnsupportedError

ENERGY = """
energy:
  mac_pj: {bf16: 0.5}
  lane_fma_pj: 8
  lane_other_pj: {value: 4, source: a guess, evidence: assumption, span: [2, 16]}
  memory_pj_per_byte: {SRAM: 1.0, ACC: 0.25}
  hbm_pj_per_byte: 32
  static_watts: 5
"""
AREA = """
area:
  core_mm2: 0.5
  mac_mm2: {MATRIX: 0.0005}
  memory_mm2_per_kib: {SRAM: 0.002}
  uncore_mm2: {noc: 6, phy: 20}
"""
EDGE = 256
PICO = 1e-12


@pytest.fixture
def chip(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    assert main(["devices", "new", str(path)]) == 0
    path.write_text(path.read_text() + ENERGY + AREA)
    return path


def timed(chip: Path, **options: object) -> hwsim.Result:
    return hwsim.run(**({"device": chip, "format": "bf16", "m": EDGE, "n": EDGE, "k": EDGE, "exact": False} | options))


def test_joules_are_the_counts_times_the_files_energies(chip: Path) -> None:
    result = timed(chip)
    spent = energy(result.times, result.gemm)
    macs, moved = result.macs["padded"], result.traffic_bytes
    assert macs == EDGE**3
    assert spent.joules_by["matrix"] == pytest.approx(macs * 0.5 * PICO)
    operands = macs * 2 * (1 / 16 + 1 / 16)  # an element serves the 16 columns, or rows, of an instruction
    assert spent.joules_by["SRAM"] == pytest.approx((operands + moved["GM_SRAM"]) * PICO)
    assert spent.joules_by["ACC"] == pytest.approx(moved["ACC_GM"] * 0.25 * PICO)
    assert spent.joules_by["hbm"] == pytest.approx((moved["HBM read"] + moved["HBM write"]) * 32 * PICO)
    assert spent.joules_by["static"] == pytest.approx(5 * result.seconds)
    assert spent.joules_by["lanes"] == spent.joules_by["l2"] == 0
    assert spent.joules == pytest.approx(sum(spent.joules_by.values())) and spent.evidence == "assumption"


def test_low_and_high_are_the_ends_of_a_span(chip: Path) -> None:
    result = timed(chip, alpha=2.0)
    lanes = {level: energy(result.times, result.gemm, level).joules_by["lanes"] for level in ("low", "typical", "high")}
    assert lanes["low"] > 0
    assert lanes["typical"] == pytest.approx(2 * lanes["low"]) and lanes["high"] == pytest.approx(8 * lanes["low"])


def test_what_has_no_energy_is_named_and_none_is_made_up(chip: Path, tmp_path: Path) -> None:
    half = timed(chip, format="fp16")
    with pytest.raises(UnsupportedError, match=r"mine has no energy.mac_pj.fp16 in its file"):
        energy(half.times, half.gemm)
    with pytest.raises(UnsupportedError, match="no energies of mine were measured"):
        energy(half.times, half.gemm, "measured")
    other = tmp_path / "bare.yaml"
    assert main(["devices", "new", str(other)]) == 0
    bare = timed(other)
    with pytest.raises(UnsupportedError, match=r"no energies of device bare: its file has no energy:"):
        energy(bare.times, bare.gemm)
    with pytest.raises(UnsupportedError, match="bare has no area in its file"):
        area_of(load(other))


def test_area_is_of_cores_multipliers_memories_and_the_rest(chip: Path) -> None:
    area = area_of(load(chip))
    assert area.mm2_by == pytest.approx(
        {"core": 16 * 0.5, "MATRIX": 16 * 4096 * 0.0005, "SRAM": 16 * 512 * 0.002, "noc": 6, "phy": 20}
    )
    assert area.mm2 == pytest.approx(8 + 32.768 + 16.384 + 26) and area.evidence == "assumption"


def test_names_in_costs_are_the_files(chip: Path) -> None:
    text = chip.read_text().replace("mac_pj: {bf16", "mac_pj: {bf61").replace("{MATRIX: 0.0005}", "{MATRX: 0.0005}")
    chip.write_text(text.replace("{SRAM: 0.002}", "{SRAN: 0.002}").replace("lane_fma_pj: 8", "lane_fma_pj: -8"))
    with pytest.raises(ConfigError) as error:
        load(chip)
    told = "\n".join(error.value.problems)
    for word in (
        "energy.mac_pj.bf61: 'bf61' is not a known format",
        "area.mac_mm2.MATRX: 'MATRX' is not one of engines",
    ):
        assert word in told
    assert "area.memory_mm2_per_kib.SRAN" in told and "energy.lane_fma_pj" in told


def test_costs_change_neither_a_file_without_them_nor_the_evidence_of_times(chip: Path) -> None:
    plain = chip.with_name("plain.yaml")
    plain.write_text(chip.read_text().replace(ENERGY, "").replace(AREA, ""))
    assert "energy" not in load(plain).canonical() and "energy" in load(chip).canonical()
    guessed = chip.read_text().replace("static_watts: 5", "static_watts: {value: 5, source: none, evidence: unknown}")
    chip.write_text(guessed)
    result = timed(chip)
    assert result.evidence["timing"] == "assumption" and energy(result.times, result.gemm).evidence == "unknown"


def test_a_sweeps_rows_have_energy_and_area(chip: Path) -> None:
    study = {"devices": [{"device": str(chip), "set": {"cores": [8, 16]}}], "shapes": [[EDGE] * 3]}
    table = hwsim.sweep(study | {"options": {"format": ["bf16", "fp16"]}}, jobs=1, cache=False)
    result = timed(chip)
    full = table.rows[2]
    assert (full["cores"], full["joules"]) == (16, energy(result.times, result.gemm).joules)
    assert full["area_mm2"] == pytest.approx(83.152) and full["energy_evidence"] == "assumption"
    assert table.rows[0]["area_mm2"] == pytest.approx(26 + (83.152 - 26) / 2)
    assert table.rows[3]["joules"] is None and "mac_pj.fp16" in table.rows[3]["cost_note"]
    known = hwsim.sweep({"devices": "h100", "shapes": [[EDGE] * 3], "options": {"format": "bf16"}}, jobs=1, cache=False)
    assert "joules" not in known.columns
    asked = hwsim.sweep(
        {"devices": "h100", "shapes": [[EDGE] * 3], "options": {"format": "bf16"}, "energy": True}, jobs=1, cache=False
    )
    assert asked.rows[0]["joules"] > 0 and "no area in its file" in asked.rows[0]["cost_note"]


def test_the_verb_warns_where_joules_are_missing(chip: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = [word for name in "mnk" for word in (f"--{name}", str(EDGE))]
    assert main(["sweep", "--device", str(chip), "--format", "fp16", *sizes, "--no-cache", "--jobs", "1"]) == 0
    said = capsys.readouterr().err
    assert "hwsim: warning: no joules or no area: " in said and "mac_pj.fp16" in said


def test_a_run_prints_energy_and_area(chip: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--m", "256", "--n", "256", "--k", "256", "--no-exact"]
    assert main(["run", "--device", str(chip), "--format", "bf16", *sizes]) == 0
    text = " ".join(capsys.readouterr().out.split())
    result = timed(chip)
    spent = energy(result.times, result.gemm)
    share = spent.joules_by["hbm"] / spent.joules
    assert (
        f"energy {spent.joules * 1e6:,.4g} uJ, {spent.watts:,.3g} W on average (assumption): hbm {100 * share:.1f} %"
        in text
    )
    parts = "16 cores x (core 0.5 mm2 + MATRIX 2.048 mm2 + SRAM 1.024 mm2) + noc 6 mm2 + phy 20 mm2"
    assert f"area 83.15 mm2 (assumption): {parts}" in text and "multipliers a core" not in text
    assert main(["run", "--device", str(chip), "--format", "fp16", *sizes]) == 0
    assert "energy none: device mine has no energy.mac_pj.fp16" in " ".join(capsys.readouterr().out.split())


def test_an_area_that_another_instruction_decides_is_said(chip: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rates = {"instructions.*.bf16.bf16.timing.macs_per_cycle": [1024, 4096, 8192]}
    study = {"devices": str(chip), "shapes": [[EDGE] * 3], "options": {"format": "bf16"}}
    rows = hwsim.sweep(study, numbers=rates, jobs=1, cache=False).rows
    note = (
        "the area of MATRIX is of 4,096 multipliers a core, as its fastest instruction mma.m16n16k16.f32.fp16.fp16 "
        "needs, not of the 1,024 of mma.m16n16k16.f32.bf16.bf16"
    )
    assert [row["cost_note"] for row in rows] == [note, None, None]
    together = {"instructions.mma*.timing.macs_per_cycle": [1024, 4096, 8192]}
    rows = hwsim.sweep(study, numbers=together, jobs=1, cache=False).rows
    fixed = 83.152 - 32.768
    assert [row["area_mm2"] - fixed for row in rows] == pytest.approx([8.192, 32.768, 65.536])
    assert not any(row["cost_note"] for row in rows)
    lines = [
        line.replace("cycle: 4096", "cycle: 1024") if "bf16.bf16: {" in line else line
        for line in chip.read_text().splitlines()
    ]
    chip.write_text("\n".join(lines))
    words = ["--format", "bf16", "--m", "256", "--n", "256", "--k", "256", "--no-exact"]
    capsys.readouterr()
    assert main(["run", "--device", str(chip), *words]) == 0
    assert note in " ".join(capsys.readouterr().out.split())


def test_a_part_outside_cores_may_have_the_name_of_a_memory(chip: Path) -> None:
    chip.write_text(chip.read_text().replace("{noc: 6, phy: 20}", "{SRAM: 6, phy: 20}"))
    area = area_of(load(chip))
    assert area.mm2 == pytest.approx(83.152) and area.mm2_by["SRAM"] == pytest.approx(16.384 + 6)


def test_the_json_of_a_run_has_energy_and_area(chip: Path) -> None:
    result = timed(chip)
    spent, printed = energy(result.times, result.gemm), json.loads(result.to_json())
    assert printed["area_mm2"] == pytest.approx(83.152)
    assert printed["energy"] == {
        "joules": spent.joules,
        "joules_by": spent.joules_by,
        "watts": spent.watts,
        "evidence": "assumption",
        "note": "",
    }
    lacking = timed(chip, format="fp16").to_dict()["energy"]
    assert lacking["joules"] is None and "energy.mac_pj.fp16" in lacking["note"]
    without = hwsim.run(device="h100", format="bf16", m=64, n=64, k=64, exact=False).to_dict()
    assert without["energy"] is None and without["area_mm2"] is None


def test_the_tutorials_energies_are_enough_for_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With bits, operands are cast on the lanes first; in fp32 the product runs there."""
    page = (Path(__file__).parents[2] / "docs" / "tutorial" / "your_accelerator.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["devices", "new", "mine.yaml"]) == 0
    Path("costs.yaml").write_text(page.partition("```yaml title=costs.yaml\n")[2].partition("```")[0])
    for form in ("bf16", "fp32"):
        result = hwsim.run(device="costs.yaml", format=form, m=64, n=64, k=64)
        spent = energy(result.times, result.gemm)
        assert result.c is not None and spent.joules_by["lanes"] > 0
