"""The tests on kernels built with AddressSanitizer and UBSan, signed overflow included.

`python lab/tools/sanitize` runs the whole suite, `python lab/tools/sanitize --quick` a part of it, `--brief` less,
`python lab/tools/sanitize tests/kernels -k convert` whatever pytest selects. It builds the kernels into build/sanitized
(one build of them, for AVX2 where the machine has it), shows that faults planted in code that is compiled by the same
command are reported, and then runs pytest there, on all processors unless `-n` says another number. A report ends its
process, which is a failure of the test that ran in it; all reports are printed at the end. Tests that cannot work there
stand in unfit.yaml with the reason; they are skipped and counted.

The whole suite takes hours of one processor. `--part 3/8` runs every eighth test from the third, `--log FILE` keeps
what came of each and leaves out those in it that did not fail, `--minutes M` starts no test after that time:

    python lab/tools/sanitize --log build/sanitized/whole.jsonl --minutes 55      # again until it exits with 0 or 1

Exit code 0: tests pass without a report; 1: a test fails, or there is a report; 2: cannot run, was interrupted, or
--minutes ended before all tests had run. It needs GCC, whose sanitizers' libraries are loaded before Python.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "build/sanitized"
LIB, TEMP = FOLDER / "lib", FOLDER / "temp"
REPORTED = FOLDER / "reports"  # what processes report, also those whose output a test takes
PLUGIN = Path(__file__).with_name("sanitized_suite.py")
# Threads of a process: as many processes as processors run side by side.
THREADS = {"HWSIM_THREADS": "2", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
OF_THE_CHECKOUT = ("tests",)  # what a package does not have, and tests of a checkout need
MOST_LINES, MOST_SHOWN = 40, 5  # of a report, and reports in full
PLANTED = Path(__file__).with_name("planted.c")
# Faults of planted.c, and what the report on each says; where the compiler sees an object's size, UBSan is first.
SIZE = "insufficient space for an object"
REPORTS = {
    "signed_overflow": ("signed integer overflow",),
    "shift_too_far": ("shift exponent 40 is too large",),
    "float_out_of_range": ("outside the range of representable values",),
    "misaligned_read": ("misaligned address",),
    "read_past_the_heap": ("heap-buffer-overflow", SIZE),
    "read_after_free": ("heap-use-after-free",),
    "write_past_the_stack": ("stack-buffer-overflow", SIZE),
    "read_past": ("heap-buffer-overflow",),
}
# What --quick runs: arithmetic kernels, conversions, lanes, golden sets through the evaluator, timing engine, programs.
QUICK = (
    "tests/kernels/test_convert.py",
    "tests/kernels/test_dot_bounds.py",
    "tests/kernels/test_dot_two_level.py",
    "tests/kernels/test_lanes.py",
    "tests/golden/test_golden_selftest.py",
    "tests/machines/test_timing_rules.py",
    "tests/program/test_order.py",
)

# What --brief runs, for CI: all dot units and four whole products, bounds of fast ways, the timing engine.
BRIEF = (
    "tests/golden/test_golden_selftest.py::test_this_installation_passes",
    "tests/kernels/test_dot_bounds.py",
    "--deselect=tests/kernels/test_dot_bounds.py::test_what_is_packed_beyond_k_counts_as_zero",  # its slowest
    "tests/kernels/test_environment.py",
    "tests/machines/test_timing_rules.py",
)


class CannotRunError(Exception):
    """What is missing, as a sentence."""


def output(*command: str, **options: object) -> str:
    """What a command prints; CannotRunError with its words where it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", **options)  # type: ignore[call-overload]
    except OSError as error:
        raise CannotRunError(f"{command[0]}: {error.strerror}") from None
    if done.returncode:
        raise CannotRunError(f"{shlex.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return str(done.stdout)


def libraries(compiler: str) -> list[str]:
    """The sanitizers' libraries and C++'s, which Python loads first."""
    found = [output(compiler, f"-print-file-name={name}").strip() for name in ("libasan.so", "libubsan.so")]
    if missing := [name for name in found if not Path(name).is_absolute()]:
        raise CannotRunError(
            f"{compiler} has no {', '.join(missing)}; install GCC with its sanitizers, or name one in CC"
        )
    named = (output(compiler, f"-print-file-name=libstdc++.so{end}").strip() for end in ("", ".6"))
    plus = next((name for name in named if Path(name).is_absolute()), None)  # the first comes with the C++ compiler
    return [*found, *([plus] if plus else [])]


def environment(compiler: str) -> dict[str, str]:
    """The environment of the tests: sanitizers, C's memory for Python and NumPy, the package that was built."""
    to_files = f"log_path={REPORTED / 'report'}"
    # Without bytecode each process that a test starts compiles the package again, under sanitizers slowly.
    left_out = ("HWSIM_KERNEL", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    inherited = {key: value for key, value in os.environ.items() if key not in left_out}
    return inherited | {
        "LD_PRELOAD": ":".join(libraries(compiler)),
        "PYTHONMALLOC": "malloc",  # each object its own block, so that a read beside it is seen
        "PYTHONPATH": os.pathsep.join(map(str, (LIB, PLUGIN.parent, ROOT / "lab"))),
        # Python frees little at its end; what an allocation cannot get is an error of Python's; `hwsim blas` loads its
        # library before the sanitizers'.
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:detect_stack_use_after_return=1:"
        f"verify_asan_link_order=0:{to_files}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:{to_files}",
        "HWSIM_SANITIZE": "1",
        **THREADS,
    }


def build() -> None:
    """Build kernels and package into FOLDER; what is there already stays."""
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace") if sys.platform == "linux" else ""
    alone = "avx2" if " avx2 " in flags else "baseline"
    command = [sys.executable, "setup.py", "-q", "build", "--build-lib", str(LIB), "--build-temp", str(TEMP)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"HWSIM_SANITIZE": "1", "HWSIM_ALONE": alone})
    if done.returncode:
        raise CannotRunError("the kernels are not built: see above")
    for name in OF_THE_CHECKOUT:
        link = LIB / name
        if not link.exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(ROOT / name)


def planted() -> Path:
    """planted.c, compiled and linked by a kernel's own command."""
    record = next(iter(sorted(TEMP.rglob("variant/dot/*.command"))), None)
    if record is None:
        raise CannotRunError(f"no kernel was compiled below {TEMP}")
    command = shlex.split(record.read_text().splitlines()[1])
    command[command.index("-c") + 1] = str(PLANTED)
    objects, library = FOLDER / "planted.o", FOLDER / "planted.so"
    command[command.index("-o") + 1], command[command.index("-MF") + 1] = str(objects), str(objects.with_suffix(".d"))
    output(*command, cwd=ROOT)
    output(command[0], "-shared", "-fsanitize=address,undefined", "-o", str(library), str(objects))
    return library


def prove(env: dict[str, str]) -> None:
    """Raise CannotRunError where one of the planted faults is not reported."""
    library = str(planted())
    call = "import ctypes, sys; getattr(ctypes.CDLL(sys.argv[1]), sys.argv[2])()"
    past = (
        "import ctypes, sys, numpy; a = numpy.zeros(24, numpy.uint8);"
        "getattr(ctypes.CDLL(sys.argv[1]), sys.argv[2])(ctypes.c_void_p(a.ctypes.data), ctypes.c_long(24))"
    )
    reporting = {**env, "ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=0"}
    for name, said in {"no_fault": (), **REPORTS}.items():
        code = past if name == "read_past" else call
        done = subprocess.run(
            [sys.executable, "-c", code, library, name], env=reporting, capture_output=True, text=True, errors="replace"
        )
        if (done.returncode != 0) != bool(said) or (said and not any(x in done.stderr for x in said)):
            raise CannotRunError(
                f"planted {name}: exit code {done.returncode}, {' or '.join(said) or 'nothing'!r} not reported:\n"
                f"{done.stderr[:2000]}"
            )
    where = output(sys.executable, "-P", "-c", "import hwsim._kernels.dot as m; print(m.__file__)", env=env).strip()
    if not Path(where).is_relative_to(LIB):
        raise CannotRunError(f"the tests would take {where}, not the kernels in {LIB}")
    print(f"sanitize: {len(REPORTS)} planted faults are reported, {', '.join(REPORTS)}", flush=True)


def reports() -> list[str]:
    """What was reported since the folder was emptied; warnings of memory that was not to be had are none."""
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(REPORTED.iterdir())]
    return [text for text in texts if "ERROR: " in text or "runtime error: " in text]


def run_tests(options: list[str], env: dict[str, str]) -> int:
    """Pytest's exit code and the reports as an exit code of this program."""
    shutil.rmtree(REPORTED, ignore_errors=True)
    REPORTED.mkdir(parents=True)
    # -P: not the checkout's own package. A process that a report ends is replaced.
    command = [sys.executable, "-P", "-m", "pytest", "-p", PLUGIN.stem, "-p", "no:cacheprovider"]
    command += ["-n", "auto", "--dist", "worksteal", "--max-worker-restart", "1000", *options]
    code = subprocess.run(command, cwd=ROOT, env=env).returncode
    found = reports()
    for text in found[:MOST_SHOWN]:
        print("\n".join(text.splitlines()[:MOST_LINES]), flush=True)
    print(f"sanitize: pytest's exit code {code}; {len(found) or 'no'} reports{f' in {REPORTED}' if found else ''}")
    return 1 if found else {0: 0, 2: 2, 3: 2, 4: 2, 5: 2}.get(code, 1)


def main() -> int:
    """Build, prove, run pytest, print the reports."""
    parser = argparse.ArgumentParser(
        prog="python lab/tools/sanitize", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help=f"run {', '.join(QUICK)} alone")
    parser.add_argument("--brief", action="store_true", help=f"run {', '.join(BRIEF)} alone")
    parser.add_argument("--prove", action="store_true", help="build, see the planted faults reported, run no tests")
    parser.add_argument("--part", metavar="K/N", help="every N-th test from the K-th alone")
    parser.add_argument("--log", type=Path, metavar="FILE", help="add what comes of each test; leave out those in it")
    parser.add_argument("--minutes", type=float, help="start no test after so many minutes of tests")
    chosen, others = parser.parse_known_args()
    try:
        env = environment(os.environ.get("CC", "gcc").split()[0])
        build()
        prove(env)
    except CannotRunError as problem:
        print(f"sanitize: {problem}", file=sys.stderr)
        return 2
    if chosen.prove:
        return 0
    ours = [f"--{name}={value}" for name in ("part", "log", "minutes") if (value := getattr(chosen, name)) is not None]
    return run_tests([*ours, *(QUICK if chosen.quick else BRIEF if chosen.brief else ()), *others], env)


if __name__ == "__main__":
    sys.exit(main())
