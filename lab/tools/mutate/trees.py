"""Copies of the project, built, in which one mutant at a time is built and tested.

It knows how a checkout is copied, built and tested; it does not know what a mutant is beside a changed text.
"""

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
MEMORY_BYTES = 12 << 30  # of address space, for one process of a test
BUILT = ("build", "hwsim/_kernels")  # folders in which a build writes


def limited():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def sources():
    """The files of the checkout: those that git does not ignore, or without git all outside of built folders."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if listed.returncode == 0:
        names = listed.stdout.decode().split("\0")[:-1]
        return [name for name in names if (ROOT / name).is_file()]
    found = (
        path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file() and path.suffix not in (".so", ".pyc")
    )
    return [
        str(path) for path in found if not path.parts[0].startswith(".") and path.parts[0] not in ("build", "shared")
    ]


class Tree:
    """A built copy at `folder`. Its tests run with one thread of BLAS, and never import the checkout itself."""

    def __init__(self, folder, alone):
        self.folder, self.pristine = folder, {}
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("HWSIM_")},
            "HWSIM_ALONE": alone,
            "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "MAX_JOBS": "1",
            "XDG_CACHE_HOME": str(folder / ".cache"),
            "TMPDIR": str(folder / ".tmp"),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / ".hypothesis"),
        }

    def make(self, source=None, jobs=1):
        """Copy the files that git tracks and build them; from another tree: copy it as it is."""
        if source is not None:
            shutil.copytree(source.folder, self.folder, symlinks=True)
        else:
            for name in sources():
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.folder / name)
            self.environment["MAX_JOBS"] = str(jobs)
            done = self.build(600)
            self.environment["MAX_JOBS"] = "1"
            if done is not True:
                raise SystemExit(f"{self.folder} is not built:\n{done}")
            compiled = [sys.executable, "-m", "compileall", "-q", "hwsim", "tests", "lab"]
            subprocess.run(compiled, cwd=self.folder, check=False, capture_output=True)
        (self.folder / ".tmp").mkdir(exist_ok=True)
        self.pristine = {path: path.stat().st_mtime_ns for path in self.built()}
        return self

    def built(self):
        suffixes = (".o", ".so", ".d", ".command", ".c")
        return [path for name in BUILT for path in (self.folder / name).rglob("*") if path.suffix in suffixes]

    def run(self, command, seconds):
        """(exit code, text), or (None, text) where it took longer. Everything that it started ends with it."""
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=limited,
        )
        try:
            text, _ = process.communicate(timeout=seconds)
            return process.returncode, text
        except subprocess.TimeoutExpired:
            return None, "longer than its time"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()

    def build(self, seconds):
        """True, or what the build said."""
        code, text = self.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], seconds)
        return True if code == 0 else text[-2000:]

    def changed(self):
        """Built files that are not those of the unchanged tree."""
        return [path for path in self.built() if self.pristine.get(path) != path.stat().st_mtime_ns]

    def restore(self, other, name):
        """Make this tree the unchanged one again: the source `name` and all that was built, from the tree `other`."""
        for path in [*self.changed(), *(x for x in self.pristine if not x.exists()), self.folder / name]:
            before = other.folder / path.relative_to(self.folder)
            if before.exists():
                shutil.copy2(before, path)
            else:
                path.unlink()
        shutil.rmtree(self.folder / ".tmp", ignore_errors=True)
        (self.folder / ".tmp").mkdir(exist_ok=True)

    def test(self, targets, seconds, left_out=(), first=True):
        """(the tests that failed, seconds): none where all pass, the first one alone with `first`.

        Slow tests run too. left_out: tests not to run. Where pytest ends without a failed test, what it said counts as
        one.
        """
        start = time.perf_counter()
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no", "-m", "", *targets]
        command += [f"--deselect={name}" for name in left_out] + ["-x"] * first
        code, text = self.run(command, seconds)
        took = round(time.perf_counter() - start, 1)
        if code == 0:
            return [], took
        if code is None:
            return ["time"], took
        lines = (line for line in text.splitlines() if line.startswith(("FAILED ", "ERROR ")))
        return [x.partition(" - ")[0].split(maxsplit=1)[1] for x in lines] or [f"exit code {code}: {text[-300:]}"], took
