"""Compiled parts of hwsim, and its examples. Everything else about the package stands in pyproject.toml.

The arithmetic kernels are one set of C sources compiled once per instruction set; the choice between
the builds is made when the package is imported (kernels_ext/dot.pyx). Each object is compiled once, also
where two extensions link it; steps run side by side and only if what they read has changed.
"""

import os
import shlex
import subprocess
import sys
import sysconfig
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import Cython
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import CompileError

ROOT = Path(__file__).resolve().parent
SOURCE, VARIANT = ROOT / "kernels_ext/src", ROOT / "kernels_ext/variant"
# Contraction stays off: a fused multiply-add that the source does not ask for changes bits.
FLAGS = ["-O3", "-ffp-contract=off", "-fno-math-errno", "-fvisibility=hidden", "-std=gnu11", "-pthread"]
# Code that Cython writes for one call of a kernel; where the loops are in the .pyx itself it gets FLAGS.
WRAPPER_FLAGS = {name: [*FLAGS, "-O1"] for name in ("convert", "dot", "engine", "lanes", "program")}
# The platform that is built for. A cross-build names its own in _PYTHON_HOST_PLATFORM, as linux-aarch64, beside the
# compiler in CC and LDSHARED and the names of extensions in SETUPTOOLS_EXT_SUFFIX (lab/tools/wheels).
TARGET = sysconfig.get_platform()
X86 = TARGET.rpartition("-")[2].lower() in ("x86_64", "amd64")
VARIANTS = {"baseline": []}
if X86:
    VARIANTS["avx2"] = ["-mavx2", "-mfma", "-mf16c", "-mbmi", "-mbmi2", "-mlzcnt", "-mpopcnt"]
    VARIANTS["avx512"] = [
        *VARIANTS["avx2"],
        "-mavx512f",
        "-mavx512bw",
        "-mavx512dq",
        "-mavx512vl",
        "-mavx512cd",
        "-mprefer-vector-width=512",
    ]
# One build of the kernels alone: under the name baseline, for the instruction set that HWSIM_ALONE names. Such an
# extension runs on processors with that set only; for lab/tools/mutate and sanitizers.
if ALONE := os.environ.get("HWSIM_ALONE"):
    if ALONE not in VARIANTS:
        raise SystemExit(f"HWSIM_ALONE: {ALONE!r} not known; allowed: {', '.join(VARIANTS)}")
    VARIANTS = {"baseline": VARIANTS[ALONE]}
# A wheel whose compiled parts are taken: .ci/run installs the checkout and its wheel and compiles once.
BUILT = os.environ.get("HWSIM_BUILT", "")
USES = {"dot": ("lanes",)}  # an extension whose C calls that of another links its objects too

# HWSIM_SANITIZE: AddressSanitizer and UBSan, the first report ends the process (lab/tools/sanitize). These flags stand
# after the interpreter's own: its -fwrapv makes signed overflow wrap and hides it, its -O3 takes far longer to compile.
SANITIZE = [
    "-O1",
    "-fsanitize=address,undefined,float-cast-overflow",
    "-fno-sanitize=shift-base",  # kernels write bits with signed shifts into the sign, which GCC and clang define
    "-fno-sanitize-recover=all",
    "-fno-wrapv",
    "-fno-omit-frame-pointer",
]
sanitize = SANITIZE if os.environ.get("HWSIM_SANITIZE") else []
debug = bool(os.environ.get("HWSIM_DEBUG"))
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": debug,
    "wraparound": debug,
    "cdivision": True,
    "initializedcheck": debug,
    "freethreading_compatible": True,
}


SHIM = "libhwsim_blas.so"
EXAMPLE_SUFFIXES = (".py", ".md", ".toml", ".yaml", ".ipynb", ".csv", ".txt")
LEFT_BEHIND = {"__pycache__", "build", ".ipynb_checkpoints"}


def short_name(ext: Extension) -> str:
    return ext.name.rpartition(".")[2]


def variant_sources(name: str) -> list[str]:
    """C files of an extension that are compiled once per instruction set."""
    parts = (name, *USES.get(name, ()))
    return [str(path.relative_to(ROOT)) for part in parts for path in sorted(VARIANT.glob(f"{part}/*.c"))]


def plain_sources(name: str) -> list[str]:
    """C files of an extension that are compiled once."""
    parts = (name, *USES.get(name, ()))
    return [str(path.relative_to(ROOT)) for part in parts for path in sorted(SOURCE.glob(f"{part}*.c"))]


def extension_names() -> list[str]:
    """Extensions to build: all, or those that HWSIM_EXTENSIONS names."""
    known = [path.stem for path in sorted((ROOT / "kernels_ext").glob("*.pyx"))]
    asked = os.environ.get("HWSIM_EXTENSIONS", ",".join(known)).split(",")
    if unknown := [name for name in asked if name not in known]:
        raise SystemExit(f"HWSIM_EXTENSIONS: {', '.join(map(repr, unknown))} not known; allowed: {', '.join(known)}")
    return asked


def job_count() -> int:
    """Steps that run at once: MAX_JOBS, or the processors that this process may use."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    text = os.environ.get("MAX_JOBS") or str(allowed)
    if not (text.isascii() and text.isdigit() and int(text)):
        raise SystemExit(f"MAX_JOBS: must be a whole number of at least 1; got {text!r}")
    return int(text)


@dataclass(frozen=True)
class Step:
    """One file made by one command. depfile: where the command writes what it read, as for make; None: always run."""

    label: str
    output: Path
    command: tuple[str, ...]
    depfile: Path | None = None

    def stamp(self) -> str:
        """What an output depends on beside the files of this tree."""
        return f"Cython {Cython.__version__}\n{shlex.join(self.command)}\n"

    def is_done(self) -> bool:
        """Whether the output is there, made by this command and newer than all files of this tree that it read."""
        if self.depfile is None:
            return False
        try:
            made = self.output.stat().st_mtime_ns
            same = self.depfile.with_suffix(".command").read_text() == self.stamp()
            read = self.depfile.read_text().replace("\\\n", " ").partition(":")[2].split()
            inside = [Path(path) for path in read if not path.startswith(("/", ".."))]
            return same and bool(inside) and all(path.stat().st_mtime_ns < made for path in inside)
        except OSError:
            return False

    def run(self) -> str:
        """What the command printed. Raises CompileError with the command where it fails."""
        self.output.parent.mkdir(parents=True, exist_ok=True)
        if self.depfile:
            self.depfile.with_suffix(".command").unlink(missing_ok=True)
        done = subprocess.run(
            self.command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        if done.returncode:
            said = done.stdout.rstrip()
            raise CompileError(f"{self.label}: exit code {done.returncode}\n{shlex.join(self.command)}\n{said}")
        if self.depfile:
            self.depfile.with_suffix(".command").write_text(self.stamp())
        return done.stdout


@dataclass(frozen=True)
class Plan:
    """Steps of one extension. kernels: the objects of its C files, some of them another extension's too."""

    cython: Step
    wrapper: Step
    kernels: tuple[Step, ...]
    link: Step


class Progress:
    """Numbered lines of steps done; calls may come from several threads."""

    def __init__(self, total: int) -> None:
        self.total, self.count = total, 0
        self.lock = threading.Lock()

    def tell(self, label: str, how: str, said: str = "") -> None:
        with self.lock:
            self.count += 1
            print(f"[{self.count:{len(str(self.total))}}/{self.total}] {how:>7}  {label}", flush=True)
            if said.strip():
                print(said.rstrip(), flush=True)


class BuildExt(build_ext):
    """Compiles the objects of all extensions together, several at once, then links each extension."""

    def build_extensions(self) -> None:
        self.check_extensions_list(self.extensions)
        if BUILT:
            self.take(Path(BUILT))
            return
        plans = [self.plan(ext) for ext in self.extensions]
        # Chains of steps that follow each other; wrappers first, as they take longest.
        chains = [(plan.cython, plan.wrapper) for plan in plans]
        chains += dict.fromkeys((step,) for plan in plans for step in plan.kernels)
        links = [(plan.link,) for plan in plans]
        if sys.platform.startswith("linux") and "HWSIM_EXTENSIONS" not in os.environ:
            chains.append((self.shim(),))
        progress, jobs = Progress(sum(map(len, chains + links))), self.jobs()
        names = ", ".join(map(short_name, self.extensions))
        print(
            f"hwsim: {progress.total} steps, {jobs} at once (MAX_JOBS), for {names}; "
            f"kernels for {', '.join(VARIANTS)} of {TARGET}",
            flush=True,
        )
        for part in (chains, links):
            self.run_chains(part, jobs, progress)

    def take(self, wheel: Path) -> None:
        """Extensions and shim from a wheel of this platform instead of compiling them."""
        outputs = {
            ext.name.replace(".", "/") + self.get_ext_filename("x").removeprefix("x"): self.get_ext_fullpath(ext.name)
            for ext in self.extensions
        }
        try:
            with zipfile.ZipFile(wheel) as archive:
                shim = f"hwsim/frameworks/blas/{SHIM}"
                if "HWSIM_EXTENSIONS" not in os.environ and shim in archive.namelist():
                    outputs[shim] = str(Path(self.get_ext_fullpath("hwsim.frameworks.blas.shim")).with_name(SHIM))
                for member, output in outputs.items():
                    Path(output).parent.mkdir(parents=True, exist_ok=True)
                    Path(output).write_bytes(archive.read(member))
        except (OSError, KeyError, zipfile.BadZipFile) as error:
            raise SystemExit(f"HWSIM_BUILT: {wheel}: {error}; allowed: a wheel of hwsim for this interpreter") from None
        print(f"hwsim: {len(outputs)} files from {wheel.name}, nothing compiled", flush=True)

    def shim(self) -> Step:
        """The library of `hwsim blas`, which has no Python inside."""
        output = Path(self.get_ext_fullpath("hwsim.frameworks.blas.shim")).with_name(SHIM)
        source, dependencies = "kernels_ext/blas/shim.c", Path(self.build_temp, "shim.d")
        flags = ["-O2", "-std=c11", "-MMD", "-MF", str(dependencies), source, "-o", str(output)]
        flags += ["-ldl", "-lm", "-pthread", "-g0"]
        return Step("shim     blas", output, (*self.compiler.linker_so, "-fPIC", *flags), depfile=dependencies)

    def copy_extensions_to_source(self) -> None:
        """For builds in the source tree the shim as well."""
        super().copy_extensions_to_source()
        inside = Path(self.build_lib, "hwsim", "frameworks", "blas", SHIM)
        if inside.is_file():
            (ROOT / "hwsim" / "frameworks" / "blas").mkdir(parents=True, exist_ok=True)
            self.copy_file(str(inside), str(ROOT / "hwsim" / "frameworks" / "blas" / SHIM))

    def run_chains(self, chains: list[tuple[Step, ...]], jobs: int, progress: Progress) -> None:
        with ThreadPoolExecutor(jobs) as pool:
            running = [pool.submit(self.run_chain, chain, progress) for chain in chains]
            try:
                for future in as_completed(running):
                    future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def jobs(self) -> int:
        """Steps at once: --parallel N where given, else `job_count`."""
        return self.parallel if self.parallel and self.parallel is not True else job_count()

    def run_chain(self, chain: tuple[Step, ...], progress: Progress) -> None:
        for step in chain:
            if not self.force and step.is_done():
                progress.tell(step.label, "kept")
                continue
            start = time.perf_counter()
            said = step.run()
            progress.tell(step.label, f"{time.perf_counter() - start:.1f} s", said)

    def plan(self, ext: Extension) -> Plan:
        name = short_name(ext)
        pyx = f"kernels_ext/{name}.pyx"
        written = Path("build/cython", pyx).with_suffix(".c")
        directives = (f"--directive={key}={value}" for key, value in DIRECTIVES.items())
        cython = Step(
            f"cython   {name}.pyx",
            written,
            (sys.executable, "-m", "cython", "-M", *directives, "--module-name", ext.name, pyx, "-o", str(written)),
            depfile=written.with_name(f"{name}.c.dep"),
        )
        wrapper = self.compiled(ext, f"wrapper  {name}.c", str(written), "", WRAPPER_FLAGS.get(name, FLAGS))
        kernels = [
            self.compiled(
                ext,
                f"{variant:8} {Path(source).relative_to('kernels_ext/variant')}",
                source,
                variant,
                [*FLAGS, *flags, f"-DHWSIM_VARIANT={variant}"],
            )
            for variant, flags in VARIANTS.items()
            for source in variant_sources(name)
        ]
        kernels += [
            self.compiled(ext, f"plain    {Path(source).name}", source, "", FLAGS) for source in plain_sources(name)
        ]
        objects = tuple(str(step.output) for step in (wrapper, *kernels))
        output = Path(self.get_ext_fullpath(ext.name))
        folders = [f"-L{folder}" for folder in self.library_dirs]
        libraries = [f"-l{library}" for library in self.get_libraries(ext)]
        link = Step(
            f"link     {name}",
            output,
            (*self.compiler.linker_so, "-o", str(output), *objects, *folders, *libraries, *ext.extra_link_args),
        )
        return Plan(cython, wrapper, tuple(kernels), link)

    def compiled(self, ext: Extension, label: str, source: str, variant: str, flags: list[str]) -> Step:
        """From a C file to its object, without the debug information that the interpreter's own flags may ask for."""
        output = Path(self.build_temp, variant, source).with_suffix(".o")
        depfile = output.with_suffix(".d")
        symbols = "-g1" if sanitize else "-g" if debug or self.debug else "-g0"
        defines = [f"-D{key}={value}" for key, value in ext.define_macros]
        includes = [f"-I{folder}" for folder in [*ext.include_dirs, *self.compiler.include_dirs]]
        command = [*self.compiler.compiler_so, *defines, *includes, "-c", source, "-o", str(output)]
        command += ["-MMD", "-MF", str(depfile), *flags, *sanitize, symbols]
        if sanitize and not variant and source.startswith("build"):
            command.append("-O0")  # what Cython wrote: a quarter of the time to compile
        return Step(label, output, tuple(command), depfile=depfile)


class BuildPy(build_py):
    """The package's files, and the examples in hwsim/examples, from where `hwsim examples copy` takes them."""

    def examples(self) -> dict[str, str]:
        """{file of the tree: file to build}, without what building and running the examples left behind."""
        files = [path for path in sorted((ROOT / "examples").rglob("*")) if path.suffix in EXAMPLE_SUFFIXES]
        kept = [path.relative_to(ROOT) for path in files if not LEFT_BEHIND & set(path.relative_to(ROOT).parts)]
        return {str(path): str(Path(self.build_lib, "hwsim", path)) for path in kept}

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for source, target in self.examples().items():
                self.mkpath(str(Path(target).parent))
                self.copy_file(source, target)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), *(() if self.editable_mode else self.examples().values())]


headers = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "kernels_ext").rglob("*.h"))]
extensions = [
    Extension(
        f"hwsim._kernels.{name}",
        [f"kernels_ext/{name}.pyx", *plain_sources(name), *variant_sources(name)],
        include_dirs=["kernels_ext/include"],
        depends=headers,
        define_macros=[("HWSIM_X86", "1" if X86 and not ALONE else "0")],
        extra_link_args=[*sanitize, "-pthread"],
    )
    for name in extension_names()
]
setup(cmdclass={"build_ext": BuildExt, "build_py": BuildPy}, ext_modules=extensions)
