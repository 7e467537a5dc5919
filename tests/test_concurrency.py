"""hwsim from several threads and processes at once; results and errors that cross between processes."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

import hwsim

CASES = [
    ("h200", "native", {"format": "fp16"}),
    ("h200", "bf16x9", {}),
    ("ascend910a", "sgemm-cube", {"functional": True}),
    ("b200", "bf16x9", {}),
    ("mi300x", "native", {"format": "bf16"}),
    ("h200", "native", {"format": "fp16", "library": "cublas"}),
    ("h100", "ozaki-int8", {}),
    ("a100", "tf32x3", {"split_k": 2}),
    ("h200", "fp8-row", {}),
]


def case(index):
    """Bits and cycles of one of the cases, with operands of its own."""
    device, scheme, options = CASES[index % len(CASES)]
    rng = np.random.default_rng(index)
    m, n, k = 33 + index % 7, 65, 67 + 16 * (index % 5)
    a, b = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
    result = hwsim.run(a, b, device=device, scheme=scheme, threads=1 + index % 3, **options)
    return result.c.tobytes(), result.cycles


@pytest.fixture(scope="module")
def serial():
    return [case(index) for index in range(2 * len(CASES))]


def test_threads_at_once_give_the_bits_and_cycles_of_one_after_another(serial):
    start = threading.Barrier(8)

    def together(index):
        if index < 8:
            start.wait(60)
        return case(index)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(together, range(2 * len(CASES)))) == serial


def test_threads_that_load_one_device_for_the_first_time(tmp_path):
    """The caches of devices and dot units are filled by all of them."""
    files = []
    for index in range(4):
        files.append(tmp_path / f"fresh{index}.yaml")
        files[-1].write_text(f"schema_version: 1\nname: fresh{index}\nextends: a2\n")
    start = threading.Barrier(8)

    def load(index):
        start.wait(60)
        device = hwsim.device(files[index % 4])
        return device.name, hwsim.matmul(np.eye(8, dtype=np.float16), np.ones((8, 8), np.float16), device=device).sum()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(load, range(8))) == [(f"fresh{index % 4}", 64) for index in range(8)]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_give_the_same(method, serial):
    """Forked after the kernels' own threads have run in this process. New processes begin everything anew: every third
    case.
    """
    chosen = range(0, len(CASES), 1 if method == "fork" else 3)
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        assert list(pool.map(case, chosen)) == [serial[index] for index in chosen]


@pytest.mark.parametrize("index", range(len(CASES)))
def test_results_cross_between_processes(index):
    device, scheme, options = CASES[index]
    result = hwsim.run(m=40, n=24, k=128, device=device, scheme=scheme, **options)
    other = pickle.loads(pickle.dumps(result))
    assert (other.c.tobytes(), other.cycles, str(other)) == (result.c.tobytes(), result.cycles, str(result))
    assert other.gemm == result.gemm
    assert other.traced(0, 0, None) is not None


@pytest.mark.parametrize("index", range(len(CASES)))
def test_results_that_crossed_have_a_report(index, tmp_path):
    pytest.importorskip("plotly", reason="needs hwsim[report]")
    device, scheme, options = CASES[index]
    result = hwsim.run(m=40, n=24, k=128, device=device, scheme=scheme, **options)
    pickle.loads(pickle.dumps(result)).report(tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size > 100_000


def test_other_answers_cross_between_processes():
    a = np.ones((8, 8), np.float32)
    table = hwsim.sweep({"devices": ["h200"], "shapes": [{"m": 64, "n": 64, "k": 64}]})
    device, choice = (
        hwsim.device("h200"),
        hwsim.library("cublas", device="h200").choose(m=64, n=64, k=64, format="fp16"),
    )
    for answer in (table, device, choice, hwsim.tune(m=64, n=64, k=64, device="ascend910a")):
        assert pickle.loads(pickle.dumps(answer)) == answer
    assert str(pickle.loads(pickle.dumps(hwsim.diff(a, a, "h200", "a100")))) != ""
    assert np.asarray(pickle.loads(pickle.dumps(hwsim.Array(a, device="h200")))).tolist() == a.tolist()


def test_errors_cross_between_processes():
    def classes(base):
        return [base, *(one for child in base.__subclasses__() for one in classes(child))]

    for kind in set(classes(hwsim.HwsimError)) - {hwsim.ConfigError}:
        error = pickle.loads(pickle.dumps(kind("what went wrong")))
        assert (type(error), str(error)) == (kind, "what went wrong")
    error = pickle.loads(pickle.dumps(hwsim.ConfigError(["x.yaml:1:1: a", "x.yaml:2:1: b"], "library")))
    assert (error.problems, error.kind, str(error)) == (
        ["x.yaml:1:1: a", "x.yaml:2:1: b"],
        "library",
        "x.yaml:1:1: a\nx.yaml:2:1: b",
    )
