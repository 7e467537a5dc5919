"""`hwsim golden`: its actions, their exit codes and their JSON; recording itself is tested with the recorder."""

from pathlib import Path

import numpy as np
import pytest
from fake_recorder import WGMMA, put_in

from hwsim.cli import main
from hwsim.golden.format import Meta, read_meta, read_sets, write_sets

GOLDEN = Path(__file__).parents[1] / "golden"
KEY = f"{WGMMA}/cancel"


@pytest.fixture
def planted(tmp_path):
    """A captured set with one bit changed."""
    sets = list(read_sets(GOLDEN / "h200" / "instructions.npz", KEY))
    sets[0].d[1, 2, 3] ^= 1 << 4
    write_sets(tmp_path / "planted.npz", sets, Meta("silicon", "h200"))
    return tmp_path / "planted.npz"


def test_verify_a_folder(cli):
    done = cli("golden", "verify", GOLDEN / "h200_edge")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1].startswith("0 of ")


def test_verify_only_some_as_json(cli):
    done = cli("golden", "verify", GOLDEN / "h200", "--only", KEY, "--json")
    assert (done.code, done.err) == (0, "")
    assert (done.json["schema"], done.json["mismatches"], done.json["results"]) == (
        "hwsim.golden-verify/1",
        0,
        12 * 512,
    )
    assert [entry["set"] for entry in done.json["sets"]] == ["cancel"]


def test_a_mismatch_ends_with_1_and_can_be_replayed(cli, planted, capsys):
    done = cli("golden", "verify", planted)
    assert done.code == 1
    assert "1 of 6144 results differ, 1 sets" in done.out
    replay = next(line.split() for line in done.out.splitlines() if line.strip().startswith("hwsim explain"))
    assert replay[:2] == ["hwsim", "explain"]
    done = cli("golden", "verify", planted, "--json")
    (miss,) = done.json["first"]
    assert (done.code, miss["bits"], miss["replay"].split()) == (1, [4], replay)
    replayed = cli(*replay[1:], "--json")
    assert (replayed.code, replayed.json["result"]["code"]) == (0, miss["got"])
    assert cli("golden", "verify", planted, "--first", 0, "--json").json["first"] == []


def test_a_replay_has_the_scales(cli, tmp_path):
    name = "tcgen05.mma.m128n8k64.mxf4nvf4.f32.e2m1.e2m1.ue4m3.block16"
    sets = list(read_sets(GOLDEN / "self" / "b200.npz", f"{name}/"))
    finite = np.argwhere((sets[0].d >> 23 & 0xFF) != 0xFF)[0]
    sets[0].d[tuple(finite)] ^= 1
    write_sets(tmp_path / "scaled.npz", sets, Meta("self", "b200"))
    (miss,) = cli("golden", "verify", "scaled.npz", "--json").json["first"]
    assert "--scale-a 0x" in miss["replay"] and "--scale-b 0x" in miss["replay"]
    assert cli(*miss["replay"].split()[1:], "--json").json["result"]["code"] == miss["got"]


def test_zero_cases_are_a_failure(refused, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "zero cases prove nothing" in refused("golden", "verify", "empty")
    assert "zero cases prove nothing" in refused("golden", "verify", GOLDEN / "h200_edge", "--only", "nothing")
    assert "no such file or folder" in refused("golden", "verify", "missing")


def test_defaults(cli, refused, monkeypatch, tmp_path, planted):
    from hwsim.cli import golden

    assert golden.TREE == GOLDEN and GOLDEN in golden.default_paths()
    monkeypatch.setattr(golden, "TREE", tmp_path / "no tree")
    monkeypatch.delenv("HWSIM_GOLDEN_DIR", raising=False)
    assert "HWSIM_GOLDEN_DIR is not set" in refused("golden", "verify")
    monkeypatch.setenv("HWSIM_GOLDEN_DIR", str(tmp_path))
    assert cli("golden", "verify").code == 1


def test_a_captured_gemm(cli, tmp_path):
    """Whole GEMMs are sets too; one is enough here."""
    done = cli("golden", "verify", GOLDEN / "h200" / "gemm.npz", "--only", "cublas.f16.k64", "--json")
    assert (done.code, done.json["mismatches"], done.json["results"]) == (0, 0, 48 * 48)


@pytest.fixture
def without_cuda(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.delenv("NVCC", raising=False)


def test_without_nvcc(refused, without_cuda, tmp_path):
    assert "nvcc was not found" in refused("golden", "record", "--out", "x.npz")
    assert not (tmp_path / "x.npz").exists()


def test_without_a_gpu(refused, without_cuda, tmp_path, monkeypatch):
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\n")
    nvcc.chmod(0o755)
    assert "no NVIDIA GPU was found" in refused("golden", "record", "--out", "x.npz")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["record"], "--out"),
        (["record", "--out", "no/x.npz"], "no folder"),
        (["record", "--out", "x.npz", "--operands", "y.npz"], "--operands y.npz: no such file"),
        (["record", "--out", "x.npz", "--distributions", "narow"], "did you mean 'narrow'?"),
        (["record", "--out", "x.npz", "--wgmma-n", "a"], "--wgmma-n a"),
        (["self", "--device", "a1000"], "no device 'a1000'"),
        (["verfy"], "invalid choice"),
        ([], "ACTION"),
    ],
)
def test_bad_input(refused, words, said):
    assert said in refused("golden", *words)


def test_self_sets(cli, tmp_path):
    done = cli("golden", "self", "--out", "kept", "--device", "v100")
    assert (done.code, done.out.split()[0], done.out.rstrip().endswith("new, written")) == (0, "v100", True)
    one, other = (list(read_sets(path / "v100.npz")) for path in (tmp_path / "kept", GOLDEN / "self"))
    assert [(x.key, x.d.tolist()) for x in one] == [(x.key, x.d.tolist()) for x in other]
    done = cli("golden", "self", "--out", "kept", "--device", "v100", "--json")
    assert (done.code, done.json["devices"][0]["same"]) == (0, True)
    sets = list(read_sets(tmp_path / "kept" / "v100.npz"))
    sets[0].d[0, 0, 0] ^= 1
    write_sets(tmp_path / "kept" / "v100.npz", sets, Meta("self", "v100"))
    done = cli("golden", "self", "--out", "kept", "--device", "v100")
    assert done.code == 1 and "1 results differ" in done.out and "nothing was replaced" in done.out
    assert cli("golden", "self", "--out", "kept", "--device", "v100", "--replace").code == 0
    assert cli("golden", "self", "--out", "kept", "--device", "v100", "--json").json["devices"][0]["same"]


def test_help_names_the_actions(capsys):
    assert main(["golden", "--help"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("verify", "record", "self", "sums"))


def test_record_writes_what_the_gpu_gave(cli, monkeypatch, tmp_path):
    put_in(monkeypatch, "hwsim.golden.recording")
    options = ["--instructions", "wgmma.*", "--distributions", "cancel,huge", "--cases", 2, "--seed", 7]
    done = cli("golden", "record", "--out", "mine.npz", *options, "--json")
    assert (done.code, done.json["results"]) == (0, 2 * 2 * 64 * (8 + 64))
    meta = read_meta(tmp_path / "mine.npz")
    assert (meta.origin, meta.device, meta.hardware) == ("silicon", "h200", "NVIDIA H200")
    assert cli("golden", "verify", "mine.npz").code == 0
    assert (
        cli("golden", "record", "--out", "again.npz", "--operands", "mine.npz", "--instructions", "wgmma.*").code == 0
    )
    one, other = (list(read_sets(tmp_path / f"{name}.npz")) for name in ("mine", "again"))
    assert [(x.key, x.d.tolist()) for x in one] == [(x.key, x.d.tolist()) for x in other]
