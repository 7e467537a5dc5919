"""720 GEMMs that cuBLAS computed on an H200: the default schedule, or the one found, gives every block they did."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from hwsim.errors import InputError
from hwsim.gemm.schedule import Epilogue, Schedule
from hwsim_lab.golden import survey

HERE = Path(__file__).parents[3] / "tests" / "golden" / "h200_cublas"
FILE = HERE / "survey.npz"


@cache
def recorded() -> survey.Survey:
    return survey.read_survey(FILE)


@cache
def known() -> dict[int, survey.ScheduleFinding]:
    return survey.from_json((HERE / "schedules.json").read_text())


def entry(index: int) -> survey.SurveyedGemm:
    return next(entry for entry in recorded().entries if entry.index == index)


def test_every_block() -> None:
    """Default where nothing else is stored; elsewhere the stored schedule does and the default one does not."""
    counts: Counter[str] = Counter()
    for gemm in recorded().entries:
        trial = survey.Trial(gemm)
        found = known().get(gemm.index)
        if found is None:
            verdict = (
                "default" if trial.gives(Schedule()) else "no matrix unit" if trial.is_fma_chain() else "not found"
            )
        else:
            assert found.schedule is not None
            assert trial.gives(found.schedule) and not trial.gives(Schedule()), gemm
            verdict = found.verdict
        counts[verdict] += 1
    assert counts == {"default": 488, "split": 111, "other": 118, "no matrix unit": 3}
    assert recorded().refused == 112


def test_blocks_that_decide_the_cut_of_k() -> None:
    """Each stored cut of an FP32 block is the only one of those tried; 21 narrow blocks leave others open."""
    outputs = {gemm.index: gemm.output for gemm in recorded().entries}
    unsure = [index for index, found in known().items() if found.agreeing != 1]
    assert len(known()) == 229 and len(unsure) == 21
    assert {outputs[index] for index in unsure} == {"fp16", "bf16"}


def test_slices_are_whole_tiles_where_k_is() -> None:
    """Of the FP32 blocks of CUTLASS kernels that cut K all but one: K = 208, tiles of 16, 18 slices."""
    strange, seen = set(), 0
    for gemm in recorded().entries:
        kernel, found = survey.kernel_of(gemm), known().get(gemm.index)
        if gemm.output != "fp32" or kernel is None or not kernel.is_cutlass or found is None or found.schedule is None:
            continue
        if found.schedule.split_k == 1:
            continue
        seen += 1
        if gemm.k % kernel.tile_k == 0 and found.schedule.slice_multiple != kernel.tile_k:
            strange.add((gemm.k, kernel.tile_k, found.schedule.split_k))
    assert seen >= 60 and strange == {(208, 16, 18)}


def test_the_search_finds_them_again() -> None:
    """One of each kind: by the kernels' names, and one without."""
    for index, agreeing in ((2 * 13 + 1, 1), (2 * 13 + 7, 1)):
        found = survey.search(entry(index))
        assert found == known()[index] and found.agreeing == agreeing
    badd = next(gemm for gemm in recorded().entries if any("_badd_" in name for name in gemm.kernels))
    found = survey.search(badd)
    assert found.verdict == "other" and found.schedule == Schedule(epilogue=Epilogue(product_format="fp16"))
    assert survey.find(entry(2 * 13 + 1), names=False) == known()[2 * 13 + 1].schedule
    # A block that nothing gives is not found.
    altered = dataclasses.replace(badd, d=badd.d ^ badd.d.dtype.type(1))
    assert survey.search(altered) == survey.ScheduleFinding("not found")


def test_names_of_kernels() -> None:
    gemm = dataclasses.replace(entry(1), kernels=())
    cases = {
        "cutlass_75_tensorop_f16_s1688gemm_f16_128x128_tn_align1": ("mma.m16n8k8.f32.f16.f16.f32", 32),
        "cutlass_80_wmma_tensorop_s161616gemm_f16_32x32_128x2_tn_align2": ("mma.m16n8k16.f32.f16.f16.f32", 128),
        "cutlass_80_tensorop_s16816gemm_f16_128x64_64x3_tn_align2": ("mma.m16n8k16.f32.f16.f16.f32", 64),
        "nvjet_sm90_hss_128x64_64x8_1x2_h_bz_TNT": (None, 64),
    }
    for name, (instruction, tile_k) in cases.items():
        kernel = survey.kernel_of(dataclasses.replace(gemm, kernels=(f"void cutlass::Kernel2<{name}>",)))
        assert kernel is not None and (kernel.instruction, kernel.tile_k) == (instruction, tile_k)
        assert not kernel.is_split
    assert survey.kernel_of(gemm) is None


def test_report_and_json() -> None:
    found = {gemm.index: known().get(gemm.index, survey.ScheduleFinding("default")) for gemm in recorded().entries}
    last = survey.report(recorded(), found).splitlines()[-1]
    assert last == "| all |  |  |  | 720 | 491 | 111 | 118 | 0 | 0 | 21 |"
    assert survey.from_json(survey.to_json(known())) == known()
    assert json.loads((HERE / "schedules.json").read_text()) == json.loads(survey.to_json(known()))


def test_origin() -> None:
    meta = json.loads((HERE / "survey.meta.json").read_text())
    assert meta["origin"] == "silicon" and meta["device"] == "h200" and meta["date"] == "2026-11-21"
    assert recorded().hardware == meta["hardware"] == "NVIDIA H200"


def test_refuses_other_files(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.zeros(3))
    for file in (tmp_path / "x.npz", tmp_path / "none.npz"):
        with pytest.raises(InputError, match="no survey of GEMMs"):
            survey.read_survey(file)
    with pytest.raises(SystemExit) as ended:
        survey.main([str(tmp_path / "none.npz")])
    assert ended.value.code == 2


def test_fields_that_the_survey_called_for() -> None:
    """Their contradictions are refused; that they give the right bits, the blocks above show."""
    used = [found.schedule for found in known().values() if found.schedule is not None]
    assert sum(schedule.epilogue.product_format == "fp16" for schedule in used) == 41
    assert sum(schedule.merge_into == "output" for schedule in used) == 2
    with pytest.raises(InputError, match="product_format"):
        Epilogue(product_format="fp16", contraction="alpha")
    with pytest.raises(InputError, match="merge_into"):
        Schedule(split_k=2, merge_into="output", merge_order="pairwise")
