"""`hwsim blas`: products of other programs, by BLAS's many names, with the bits of hwsim.matmul."""

import json
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
import pytest

import hwsim
from hwsim.cli import main
from hwsim.devices.templates import new_device_file
from hwsim.errors import InputError, UnsupportedError
from hwsim.frameworks.blas.launcher import SHIM, run_program
from hwsim.frameworks.blas.server import BlasServer
from hwsim.host import memory

pytestmark = pytest.mark.skipif(not SHIM.is_file(), reason="the library of hwsim blas is built on Linux only")
ARGUMENTS = {"device": "h200", "scheme": "tf32x3"}

PROGRAM = """
import sys
import numpy as np
rng = np.random.default_rng(1)
def drawn(dtype, *shape):
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-12, 12, shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(shape) * 2.0 ** rng.integers(-12, 12, shape)
    return x.astype(dtype)
out = {}
for name in ("float32", "float64", "complex64", "complex128"):
    a, b, square = drawn(name, 6, 33), drawn(name, 33, 5), drawn(name, 9, 9)
    out |= {f"{name} a": a, f"{name} b": b, f"{name} s": square}
    out[f"{name} gemm"] = a @ b
    out[f"{name} transposed"] = b.T @ a.T
    out[f"{name} columns"] = np.asfortranarray(a) @ b
    out[f"{name} strided"] = a[::2, 1:] @ b[1:, ::2].copy()
    out[f"{name} syrk"] = a @ a.T
    out[f"{name} gemv"] = a @ b[:, 1]
    out[f"{name} gemv of rows"] = a[2] @ b
    out[f"{name} dot"] = np.dot(a[0], a[1])
    out[f"{name} vdot"] = np.vdot(a[0], a[1])
np.savez(sys.argv[1], **out)
"""


def product(a, b):
    """By hwsim.matmul; a complex product is four real ones, as hwsim.emulate has them."""
    if np.result_type(a, b).kind != "c":
        return hwsim.matmul(a, b, **ARGUMENTS).astype(np.result_type(a, b))
    real = product(a.real, b.real) - product(a.imag, b.imag)
    return real + 1j * (product(a.real, b.imag) + product(a.imag, b.real))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The arrays of PROGRAM under hwsim blas, and the record."""
    folder = tmp_path_factory.mktemp("blas")
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(folder / "program.py"), str(folder / "out.npz")]
    code, record = run_program(command, ARGUMENTS, routines=["*"])
    assert code == 0
    with np.load(folder / "out.npz") as found:
        return dict(found), record


@pytest.mark.parametrize("name", ["float32", "float64", "complex64", "complex128"])
def test_numpy_s_products(run, name):
    found, _ = run
    a, b = found[f"{name} a"], found[f"{name} b"]
    expected = {
        "gemm": product(a, b),
        "transposed": product(b.T, a.T),
        "columns": product(a, b),
        "strided": product(a[::2, 1:], b[1:, ::2]),
        "gemv": product(a, b[:, 1:2])[:, 0],
        "gemv of rows": product(b.T, a[2][:, None])[:, 0],
        "dot": product(a[:1], a[1][:, None])[0, 0],
        "vdot": product(a[:1].conj(), a[1][:, None])[0, 0],
    }
    for what, wanted in expected.items():
        got = found[f"{name} {what}"]
        assert got.dtype == wanted.dtype and got.tobytes() == np.ascontiguousarray(wanted).tobytes(), what
    square = product(a, a.T)
    got = found[f"{name} syrk"]
    triangle = np.triu if np.array_equal(np.triu(got), np.triu(square)) else np.tril
    assert np.array_equal(triangle(got), triangle(square)) and np.array_equal(got, got.T)


def test_the_record_counts(run):
    _, record = run
    rows = {row["routine"]: row for row in record.to_dict()["routines"]}
    assert {"sgemm", "dgemm", "cgemm", "zgemm", "ssyrk", "sgemv", "sdot", "zdot"} <= set(rows)
    assert rows["sgemm"]["calls"] == 4 and rows["sgemm"]["error"] < 1e-6
    assert "sgemm" in record.text() and not record.refused


C_PROGRAM = r"""
#include <stdint.h>
#include <stdio.h>
extern void sgemm_(const char *, const char *, const int32_t *, const int32_t *, const int32_t *, const float *,
                   const float *, const int32_t *, const float *, const int32_t *, const float *, float *,
                   const int32_t *);
extern void cblas_dgemm64_(int, int, int, int64_t, int64_t, int64_t, double, const double *, int64_t, const double *,
                           int64_t, double, double *, int64_t);
extern double ddot_(const int32_t *, const double *, const int32_t *, const double *, const int32_t *);
int main(void)
{
    float a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {1, 0.5f, -1, 2, 0, 3}, c[6] = {100, 100, 100, 100, -1, -1};
    float alpha = 2, beta = 0.5f;
    int32_t two = 2, three = 3, one = 1, minus = -1;
    sgemm_("N", "T", &two, &two, &three, &alpha, a, &two, b, &two, &beta, c, &two);
    printf("%g %g %g %g %g\n", c[0], c[1], c[2], c[3], c[4]);
    double x[6] = {1, 2, 3, 4, 5, 6}, y[6] = {1, 2, 3, 4, 5, 6}, z[8] = {9, 9, 9, 9, 9, 9, 9, 9};
    cblas_dgemm64_(101, 111, 111, 2, 2, 3, 1.0, x, 3, y, 2, 0.0, z, 4);
    printf("%g %g %g %g %g\n", z[0], z[1], z[2], z[4], z[5]);
    printf("%g\n", ddot_(&three, x, &one, y, &minus));
    return 7;
}
"""
FAKE = """
#include <stdint.h>
void sgemm_(void) {}
void cblas_dgemm64_(void) {}
double ddot_(void) { return -1; }
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_c_program_with_both_widths_of_integers(tmp_path, capfd):
    for name, text in (("main.c", C_PROGRAM), ("fake.c", FAKE)):
        (tmp_path / name).write_text(text)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", "libfake.so", "fake.c"], cwd=tmp_path, check=True)
    subprocess.run(["cc", "-o", "main", "main.c", "-L.", "-lfake", f"-Wl,-rpath,{tmp_path}"], cwd=tmp_path, check=True)
    report = tmp_path / "report.json"
    words = ["blas", "--device", "h200", "--format", "fp64", "--json", str(report), "--", str(tmp_path / "main")]
    assert main(words) == 7  # the program's own exit code
    shown, said = capfd.readouterr()
    a, b = np.array([[1, 3, 5], [2, 4, 6]]), np.array([[1, -1, 0], [0.5, 2, 3]])
    c = 2 * a @ b.T + 50
    assert shown.splitlines()[0].split() == [f"{x:g}" for x in (c[0, 0], c[1, 0], c[0, 1], c[1, 1], -1)]
    d = np.arange(1, 7).reshape(2, 3) @ np.arange(1, 7).reshape(3, 2)
    assert shown.splitlines()[1].split() == [f"{x:g}" for x in (d[0, 0], d[0, 1], 9, d[1, 0], d[1, 1])]
    assert shown.splitlines()[2] == "10"  # 1*3 + 2*2 + 3*1
    rows = {row["routine"]: row["calls"] for row in json.loads(report.read_text())["routines"]}
    assert rows == {"sgemm": 1, "dgemm": 1, "ddot": 1} and "dgemm" in said


ITERATIVE_REFINEMENT = """
import sys
import numpy as np
rng = np.random.default_rng(3)
a, b = rng.standard_normal((6, 33)), rng.standard_normal((33, 5))
single = a.astype(np.float32) @ b.astype(np.float32)
complexes = (a + 1j * a) @ (b - 1j * b)
np.savez(sys.argv[1], single=single, double=a @ b, vector=a @ b[:, 0], dot=np.dot(a[0], a[1]), complexes=complexes)
"""


def refined(folder, arguments, *routines):
    """What a program of both precisions computes under hwsim blas, without it, and the record."""
    (folder / "program.py").write_text(ITERATIVE_REFINEMENT)
    command = [sys.executable, str(folder / "program.py")]
    code, record = run_program([*command, str(folder / "device.npz")], arguments, routines=routines)
    subprocess.run([*command, str(folder / "plain.npz")], check=True)
    assert code == 0
    with np.load(folder / "device.npz") as device, np.load(folder / "plain.npz") as plain:
        return dict(device), dict(plain), record


def differing(device, plain):
    return {name for name in plain if device[name].tobytes() != plain[name].tobytes()}


def test_a_routine_of_doubles_is_not_rounded_to_a_shorter_format(tmp_path):
    device, plain, record = refined(tmp_path, {"device": "h100", "format": "tf32"})
    assert differing(device, plain) == {"single"} and set(record.routines) == {"sgemm", "sdot"}  # one of NumPy's own
    (reason,) = [reason for reason in record.refused if reason.startswith("dgemm")]
    assert "comes in float32, not in float64; --routines 'dgemm' takes it all the same" in reason
    assert {reason.partition(":")[0] for reason in record.refused} == {"dgemm", "dgemv", "ddot", "zgemm"}
    assert "left to the program's own BLAS: 1 call: dgemv: " in record.text()


def test_routines_are_chosen_by_their_names(tmp_path):
    device, plain, record = refined(tmp_path, {"device": "h100", "format": "tf32"}, "dgemm", "z*")
    assert differing(device, plain) == {"double", "complexes"} and set(record.routines) == {"dgemm", "zgemm"}
    assert record.refused["sgemm: not in --routines dgemm,z*"] == 1
    assert np.array_equal(device["double"], device["double"].astype(np.float32))


@pytest.mark.parametrize("options", [{"format": "fp64"}, {"scheme": "ozaki-int8", "slices": 9}])
def test_a_scheme_of_doubles_takes_routines_of_doubles(options, tmp_path):
    _, _, record = refined(tmp_path, {"device": "h100", **options})
    assert {"dgemm", "dgemv", "ddot", "zgemm"} <= set(record.routines) and not record.refused


def test_a_pattern_that_names_no_routine_is_refused(capsys):
    assert main(["blas", "--device", "h200", "--format", "tf32", "--routines", "ssyr,d*", "--", "true"]) == 2
    assert "'ssyr' names no routine" in (said := capsys.readouterr().err) and "did you mean 'ssyrk'" in said


def test_forks_and_threads_have_connections_of_their_own(tmp_path):
    script = """
import os, threading
import numpy as np
a = np.full((4, 4), 3.0)
assert (a @ (a + 1)).sum() == 4 * 4 * 48
found = []
threads = [threading.Thread(target=lambda: found.append((a @ (a + 2)).sum())) for _ in range(4)]
for one in threads: one.start()
for one in threads: one.join()
assert found == [4 * 4 * 60] * 4
child = os.fork()
if child == 0:
    os._exit(0 if (a @ (a + 1)).sum() == 4 * 4 * 48 else 3)
assert os.waitpid(child, 0)[1] == 0
"""
    code, record = run_program([sys.executable, "-c", script], {"device": "h200", "format": "fp64"})
    assert code == 0 and record.routines["dgemm"].calls == 6


def test_a_program_whose_server_dies_ends(tmp_path):
    """Its own BLAS would go on with other bits."""
    program, code = tmp_path / "program.py", tmp_path / "code"
    program.write_text("""
import atexit, os, signal, sys
import numpy as np
a = np.full((4, 4), 3.0)
atexit.register(print, "left for the exit", flush=True)
print((a @ a).sum(), flush=True)
os.kill(int(sys.argv[1]), signal.SIGKILL)
print("went on", (a @ (a + 1)).sum(), flush=True)
""")
    inner = f"{sys.executable} {program} $PPID; echo $? > {code}.part; mv {code}.part {code}"
    command = [sys.executable, "-m", "hwsim", "blas", "--device", "h200", "--format", "fp64", "--", "sh", "-c", inner]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    deadline = time.monotonic() + 60
    while not code.is_file() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert code.read_text() == "3\n" and done.stdout == "576.0\n"
    assert done.stderr.splitlines()[0].startswith("hwsim blas: the connection to the simulated device is lost (")
    assert done.stderr.count("the program ends here, as its own BLAS would give other bits") == 1


WITHOUT_DESCRIPTORS = """
import os, threading
import numpy as np
a = np.full((4, 4), 3.0)
def multiply():
    print("product", (a @ (a + 1)).sum(), flush=True)
multiply()
taken = []
try:
    while True:
        taken.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
thread = threading.Thread(target=multiply)
thread.start()
thread.join()
print("went on", flush=True)
"""


def test_a_program_without_a_descriptor_for_its_connection_ends(tmp_path):
    (tmp_path / "program.py").write_text(WITHOUT_DESCRIPTORS)
    command = (
        f"ulimit -n 64; exec {sys.executable} {tmp_path / 'program.py'} > {tmp_path / 'out'} 2> {tmp_path / 'err'}"
    )
    code, _ = run_program(["sh", "-c", command], {"device": "h200", "format": "fp64"})
    assert code == 3 and (tmp_path / "out").read_text() == "product 768.0\n"
    said = (tmp_path / "err").read_text()
    assert said.startswith("hwsim blas: no connection to the simulated device (Too many open files)") and (
        said.count("\n") == 1
    )


def test_threads_that_end_give_their_descriptors_back():
    script = """
import threading
import numpy as np
a, right = np.full((4, 4), 3.0), []
for _ in range(100):
    one = threading.Thread(target=lambda: right.append((a @ (a + 1)).sum() == 768))
    one.start()
    one.join()
assert len(right) == 100 and all(right)
"""
    command = ["sh", "-c", 'ulimit -n 64; exec "$@"', "sh", sys.executable, "-c", script]
    code, record = run_program(command, {"device": "h200", "format": "fp64"})
    assert code == 0 and record.routines["dgemm"].calls == 100


def test_a_program_ends_where_the_server_has_no_descriptor_left(tmp_path):
    script = """
import threading
import numpy as np
a, together = np.full((4, 4), 3.0), threading.Barrier(80)
def multiply():
    together.wait()
    a @ (a + 1)
    together.wait()
threads = [threading.Thread(target=multiply) for _ in range(80)]
for one in threads: one.start()
for one in threads: one.join()
"""
    (tmp_path / "program.py").write_text(script)
    inner = f"ulimit -Sn 256; exec {sys.executable} {tmp_path / 'program.py'}"
    outer = f'ulimit -Sn 64; exec {sys.executable} -m hwsim blas --device h200 --format fp64 -- sh -c "{inner}"'
    done = subprocess.run(["sh", "-c", outer], capture_output=True, text=True, timeout=120)
    assert done.returncode == 3 and "the connection to the simulated device is lost" in done.stderr


def test_what_cannot_run(capsys, tmp_path):
    assert main(["blas", "--device", "h200"]) == 2 and "give a program" in capsys.readouterr().err
    assert main(["blas", "--device", "v100", "--scheme", "bf16x9", "--", "true"]) == 2
    assert "bf16" in capsys.readouterr().err
    with pytest.raises(InputError, match="cannot run"):
        run_program([str(tmp_path / "missing")], {"device": "h200", "format": "fp64"})
    code, record = run_program(["true"], {"device": "h200", "format": "fp64"})
    assert code == 0 and "no product was asked for" in record.text()
    assert run_program([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], ARGUMENTS)[0] == 137


def test_a_folder_too_long_for_a_socket_is_refused(tmp_path, monkeypatch, capsys):
    folder = tmp_path / ("x" * 110)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    assert main(["blas", "--device", "h200", "--format", "fp64", "--", "true"]) == 2
    assert "set TMPDIR to a folder with a shorter name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "script"),
    [
        (["octave-cli", "--eval"], "a = reshape(1:6, 2, 3); disp(a * a'); exit(a * a' != [35 44; 44 56])"),
        (["Rscript", "-e"], "a <- matrix(1:6 + 0, 2); stopifnot(all(a %*% t(a) == matrix(c(35, 44, 44, 56), 2)))"),
    ],
)
def test_other_languages(command, script):
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]}")
    code, record = run_program([*command, script], {"device": "h200", "format": "fp64"})
    assert code == 0 and record.routines


def test_what_the_device_does_not_take_is_the_program_s_own(tmp_path):
    script = """
import numpy as np
assert np.array_equal(np.ones((2, 0)) @ np.ones((0, 3)), np.zeros((2, 3)))
bad = np.full((3, 3), np.nan)
assert np.isnan(bad @ bad).all() and np.isnan(bad @ np.eye(3)).all()
x = np.ones((2, 3)) + 1j
assert np.array_equal(x @ x.T, np.full((2, 2), 6j))
"""
    code, record = run_program([sys.executable, "-c", script], {"device": "h200", "format": "fp64"})
    assert code == 0 and record.routines["dgemm"].calls


def test_a_routine_without_a_finite_error_shows_none():
    script = "import numpy as np; a = np.full((3, 3), np.inf); a @ (a + 1)"
    code, record = run_program([sys.executable, "-c", script], {"device": "h200", "format": "fp64"})
    (row,) = [row for row in record.to_dict()["routines"] if row["routine"] == "dgemm"]
    line = next(line for line in record.text().splitlines() if line.startswith("dgemm"))
    assert code == 0 and row["error"] is None and line.split()[4:6] == ["-", "-"]


def test_a_refused_product_is_counted_with_its_reason(monkeypatch):
    def refuse(self, *_):
        raise UnsupportedError("this device multiplies nothing")

    monkeypatch.setattr(BlasServer, "compute", refuse)
    script = "import numpy as np; a = np.eye(3); assert ((a @ (a + 1)) == a + 1).all() and ((a @ a) == a).all()"
    code, record = run_program([sys.executable, "-c", script], {"device": "h200", "format": "fp64"})
    assert code == 0 and not record.routines
    assert record.refused["dgemm: UnsupportedError: this device multiplies nothing"] >= 1
    assert "left to the program's own BLAS: 1 call: sdot: " in record.text() and "does the program" not in record.text()


def test_a_product_that_memory_does_not_hold_is_the_program_s_own(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 16 * 8 * 3 * 50 * 50)
    monkeypatch.setattr(memory, "ALWAYS_THERE", 0)
    script = "import numpy as np\nfor n in (50, 60):\n    a = np.eye(n); assert (a @ (a + 1) == a + 1).all()"
    code, record = run_program([sys.executable, "-c", script], {"device": "h200", "format": "fp64"})
    assert code == 0 and record.routines["dgemm"].calls == 1
    assert list(record.refused) == ["dgemm: 60 x 60 x 60 needs 0.0 GB, more than is free"]


def test_overflow_raises_the_flag_that_programs_ask_for():
    script = """
import numpy as np
x = np.full(300, 1e200)
with np.errstate(over="raise"):
    np.dot(x, np.ones(300))
    try:
        np.dot(x, x)
    except FloatingPointError:
        raise SystemExit(5)
"""
    assert run_program([sys.executable, "-c", script], {"device": "h200", "format": "fp64"})[0] == 5


def test_a_nan_of_numbers_raises_the_invalid_flag():
    script = """
import numpy as np
ones, mixed = np.ones(40), np.tile([np.inf, -np.inf], 20)
with np.errstate(invalid="raise"):
    np.dot(ones, ones), np.dot(ones, np.full(40, np.inf)), np.dot(ones, np.full(40, np.nan))
    try:
        np.dot(ones, mixed)
    except FloatingPointError:
        raise SystemExit(5)
"""
    assert run_program([sys.executable, "-c", script], {"device": "h200", "format": "fp64"})[0] == 5


def test_the_exact_device_rounds_a_program_s_dot_products_once(tmp_path):
    script = """
from fractions import Fraction
import numpy as np
rng = np.random.default_rng(2)
x, y = (rng.standard_normal(1000) * 2.0 ** rng.integers(-30, 30, 1000) for _ in range(2))
exact = sum(Fraction(a) * Fraction(b) for a, b in zip(x.tolist(), y.tolist()))
assert np.dot(x, y) == float(exact)
"""
    device = new_device_file(tmp_path / "exact.yaml", "exact_fp64")
    code, record = run_program([sys.executable, "-c", script], {"device": device, "format": "fp64"})
    assert code == 0
    assert ("ddot", 1000) in [(row["routine"], row["largest_k"]) for row in record.to_dict()["routines"]]


def test_the_report_says_what_is_not_seen(tmp_path, capsys):
    file = tmp_path / "report.json"
    assert main(["blas", "--device", "h200", "--json", str(file), "--", sys.executable, "-c", "pass"]) == 0
    assert "products that LAPACK's" in json.loads(file.read_text())["not_seen"]
    assert "not seen: calls inside one library" in capsys.readouterr().err
