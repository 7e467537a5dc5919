"""`hwsim golden campaign` and `hwsim golden questions`: exit codes, JSON, bad input."""

from pathlib import Path

import pytest
from fake_recorder import put_in
from full_disk import left, limited

from hwsim.cli import main
from hwsim.golden.format import read_meta

CAMPAIGN = ("golden", "campaign", "--outputs", "10")


@pytest.fixture
def without_cuda(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.delenv("NVCC", raising=False)


def test_without_nvcc(refused, without_cuda):
    assert "nvcc was not found" in refused(*CAMPAIGN)


def test_without_a_gpu(refused, without_cuda, tmp_path):
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\n")
    nvcc.chmod(0o755)
    assert "no NVIDIA GPU was found" in refused(*CAMPAIGN)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["campaign", "--outputs", "0"], "allowed: at least 1"),
        (["campaign", "--distributions", "narow"], "did you mean 'narrow'?"),
        (["questions", "ascend_fp61"], "did you mean 'ascend_fp16'?"),
        (["questions", "--out", "no/x.npz"], "no folder"),
    ],
)
def test_bad_input(refused, words, said):
    assert said in refused("golden", *words)


def test_help_names_the_actions(capsys):
    assert main(["golden", "--help"]) == 0
    out = capsys.readouterr().out
    assert "campaign" in out and "questions" in out


def test_questions(cli, tmp_path):
    done = cli("golden", "questions", "--json")
    assert done.code == 0
    found = {entry["name"]: entry for entry in done.json["questions"]}
    assert {"ascend_fp16", "cdna3_fp8"} <= set(found)
    assert found["ascend_fp16"]["recordable"] is False and found["ascend_fp16"]["sets"]["pair_positions"] == 240
    done = cli("golden", "questions", "ascend_fp16", "--out", "q.npz")
    assert done.code == 0 and "pair_positions" in done.out and done.out.rstrip().endswith("operands in q.npz")
    meta = read_meta(tmp_path / "q.npz")
    assert meta is not None and meta.origin == "operands"
    assert cli("golden", "verify", "q.npz").code == 2


def test_campaign_counts_and_ends_with_1(cli, monkeypatch, tmp_path):
    put_in(monkeypatch, "hwsim_lab.golden.campaign")
    done = cli("golden", "campaign", "--outputs", "2e5", "--threads", 2, "--out", "summary", "--json")
    assert (done.code, done.json["schema"]) == (1, "hwsim.golden-campaign/1")
    assert done.json["skipped"] == ["wmma.m16n16k16.f32.f16.f16.f32"]
    wrong = {row["instruction"] for row in done.json["counts"] if row["mismatches"]}
    assert wrong == {"mma.m16n8k8.f32.tf32.tf32.f32"} and done.json["mismatches"] > 0
    assert "has no such instruction: `wmma" in (tmp_path / "summary" / "campaign.md").read_text()
    done = cli("golden", "campaign", "--outputs", "2e5", "--instructions", "wgmma.*", "--threads", 2)
    assert done.code == 0 and " 0 differ; NVIDIA H200, driver 580" in done.out


def test_golden_questions_leaves_nothing_on_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "q.npz"
    done = limited(1000, "golden", "questions", "--out", str(path))
    assert (done.returncode, left(tmp_path)) == (2, [])
    assert done.stderr == f"hwsim: error: cannot write {path}: File too large; nothing was left there\n"
