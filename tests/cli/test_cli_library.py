"""`hwsim library record` without a GPU: words, exit codes, what is printed; and verbs with --library FILE.npz."""

import sys
from pathlib import Path

import pytest

import hwsim.cli.library
from hwsim.libraries.recording import machine as real

sys.path.insert(0, str(Path(__file__).parents[1] / "libraries"))
from fake_gpu import FakeRunner, machine

RECORD = ("library", "record", "--device", "h200", "--out", "my.npz")


@pytest.fixture
def gpu(monkeypatch):
    """Puts a made-up machine in the place of this one."""

    def put(**of_machine):
        runner = of_machine.pop("runner", FakeRunner())
        seen = []

        def this_machine(*, runs):
            seen.append(runs)
            return machine(runner=runner if runs else None, **of_machine)

        monkeypatch.setattr(hwsim.cli.library, "this_machine", this_machine)
        return seen

    return put


def test_a_sample_with_equal_bits_is_0(cli, gpu):
    gpu()
    done = cli(*RECORD, "--weight", "256x512", "--m", "1:200", "--gemm", "7x64x128", "13x64x128", "--sample", 3)
    assert done.code == 0 and done.err == ""
    assert "bits: 3 of 3 GEMMs equal in every bit" in done.out
    assert "cuBLASLt refuses 13 x 64 x 128, bf16 to bf16" in done.out
    assert "--library my.npz" in done.out and Path("my.npz").exists()


def test_a_bit_that_differs_is_1(cli, gpu):
    gpu(runner=FakeRunner(wrong=True))
    done = cli(*RECORD, "--gemm", "7x64x128")
    assert done.code == 1 and "1 of 168 differ, first (" in done.out and "bits: 0 of 1 GEMMs equal" in done.out


def test_json_is_one_object(cli, gpu):
    gpu(name="NVIDIA H100 80GB HBM3")
    done = cli(*RECORD, "--weight", "256x512", "--m", "1:200", "--format", "bf16", "fp16", "--bias", "both", "--json")
    assert done.code == 0 and done.json["schema"] == "hwsim.library-record/1"
    assert done.json["totals"]["equal"] == done.json["totals"]["run"] == len(done.json["sample"]) == 16
    assert {(row["format"], row["bias"]) for row in done.json["sample"]} == {
        (x, y) for x in ("bf16", "fp16") for y in (False, True)
    }
    assert done.json["gpu"]["sms"] == 132 and done.json["path"] == "my.npz" and done.json["version"] == "13.1"
    assert done.err == f"hwsim: {done.json['notes'][0]}\n"


def test_no_run_asks_and_writes(cli, gpu):
    seen = gpu()
    done = cli(*RECORD, "--gemm", "7x64x128", "--no-run")
    assert done.code == 0 and seen == [False] and "bits:" not in done.out and Path("my.npz").exists()


def test_a_file_of_shapes(cli, gpu, tmp_path):
    gpu()
    (tmp_path / "shapes.csv").write_text("m,n,k,format\n7,64,128,bf16\n9,64,128,e4m3\n", encoding="utf-8")
    done = cli(*RECORD, "--shapes", "shapes.csv", "--json")
    assert done.code == 0 and {row["format"] for row in done.json["sample"]} == {"bf16", "e4m3"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "nothing to record; give --shapes"),
        (("--gemm", "7x64"), "--gemm 7x64: allowed: MxNxK"),
        (("--gemm", "7x64x128", "--m", "1:8"), "--m is for --weight"),
        (("--gemm", "7x64x128", "--no-run", "--sample", "3"), "--sample is for what is run"),
        (("--shapes", "none.csv"), "cannot read the table of shapes none.csv"),
        (("--shapes", "none.csv", "--format", "fp16"), "--format: for --gemm and --weight"),
        (("--gemm", "7x64x128", "--out", "my.txt"), "--out my.txt: allowed: a name that ends in .npz"),
        (("--gemm", "7x64x128", "--device", "h2000"), "h2000"),
    ],
)
def test_bad_words_are_2(refused, gpu, words, said):
    gpu()
    assert said in refused(*RECORD, *words)
    assert not Path("my.npz").exists()


@pytest.mark.parametrize(
    ("of_machine", "said"),
    [({"cores": 78}, "has 78 SMs; the device file h200 has 132"), ({"version": 110903}, "for versions 12 and 13")],
)
def test_a_machine_that_does_not_fit_is_2(refused, gpu, of_machine, said):
    gpu(**of_machine)
    assert said in refused(*RECORD, "--gemm", "7x64x128")
    assert not Path("my.npz").exists()


def test_no_gpu_is_2(refused, monkeypatch):
    def none(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(real.ctypes, "CDLL", none)
    monkeypatch.setattr(real, "gpu_facts", lambda own=real.gpu_facts: own(none))
    assert "no NVIDIA GPU" in refused(*RECORD, "--gemm", "7x64x128")


@pytest.mark.parametrize("missing", ["library", "device", "pytorch"])
def test_what_is_missing_is_2(refused, monkeypatch, missing):
    def lt():
        raise OSError("no such file") if missing == "library" else RuntimeError("cublasLtCreate: status 1")

    def pytorch():
        if missing == "pytorch":
            raise ImportError("No module named 'torch'")

    monkeypatch.setattr(real, "gpu_facts", lambda: machine().gpu)
    monkeypatch.setattr(real, "CublasLt", lt)
    monkeypatch.setattr(real, "PytorchGemms", pytorch)
    said = {
        "library": "libcublasLt was not found (no such file); install PyTorch with CUDA",
        "device": "cublasLtCreate: status 1",
        "pytorch": "No module named 'torch'); install it, or give --no-run",
    }[missing]
    assert said in refused(*RECORD, "--gemm", "7x64x128")


def test_a_sample_of_which_nothing_ran_is_2(cli, gpu):
    gpu(runner=FakeRunner(problem="CUDA out of memory"))
    done = cli(*RECORD, "--gemm", "7x64x128")
    assert done.code == 2 and "no GEMM of the sample was run (CUDA out of memory); my.npz is written" in done.err


BF16 = ("--device", "h200", "--format", "bf16", "--output", "bf16", "--b-layout", "columns", "--library", "my.npz")


@pytest.fixture
def recorded(cli, gpu):
    gpu()
    assert cli(*RECORD, "--weight", "256x512", "--m", "1:300", "--no-run").code == 0


def test_run_takes_the_file(cli, recorded):
    done = cli("run", *BF16, "--m", 100, "--n", 256, "--k", 512, "--json", "-q")
    chosen = {one["name"]: one for one in done.json["gemm"]["decisions"]}
    assert (chosen["split_k"]["value"], chosen["split_k"]["evidence"]) == ("3", "microbenchmark")


def test_invariance_takes_the_file(cli, refused, recorded):
    weight = ("invariance", *BF16, "--n", 256, "--k", 512)
    first = cli(*weight, "--m", "1:12", "--json").json["classes"]
    assert [(one["m"], one["split_k"], one["confidence"]) for one in first] == [([[2, 12]], 1, 1.0), ([[1, 1]], 2, 1.0)]
    rest = cli(*weight, "--m", "14:300", "--json").json["classes"]
    assert [(one["m"], one["split_k"]) for one in rest] == [([[100, 300]], 3), ([[14, 99]], 1)]
    assert "cuBLASLt refuses 13 x 256 x 512, bf16 to bf16 (my.npz); leave m = 13 out" in refused(
        *weight, "--m", "1:300"
    )


def test_tune_takes_the_file(cli, recorded):
    words = ("--device", "h200", "--format", "bf16", "--library", "my.npz")
    done = cli("tune", *words, "--m", 100, "--n", 256, "--k", 512, "--budget", 4, "--json", "-q")
    assert done.code == 0 and done.json["library"]["name"] == "my.npz"


@pytest.mark.parametrize("verb", ["run", "invariance"])
def test_wrong_files_are_2(refused, recorded, verb):
    sizes = ("--n", 256, "--k", 512, "--m", "100")
    Path("text.npz").write_text("no archive")
    for name, said in (("none.npz", "none.npz: no file of a library's answers"), ("text.npz", "text.npz: no file")):
        assert said in refused(verb, *BF16[:-1], name, *sizes)
    assert "answers for h200 (132 SMs); the device is b200" in refused(verb, "--device", "b200", *BF16[2:], *sizes)


def test_casts_are_apart_from_the_librarys_time(cli):
    call = ["run", "--device", "h200", "--format", "bf16", "--m", "64", "--n", "64", "--k", "64", "--library", "cublas"]
    cast, own = (" ".join(cli(*call, *more).out.split()) for more in ([], ["--input-format", "bf16"]))
    assert "and without split_a, split_b, which are no call of the library" in cast
    assert "which are no call of the library" not in own
    assert all("phases of the program, whose time is not the library's" in text for text in (cast, own))
