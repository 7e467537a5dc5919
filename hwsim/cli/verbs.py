"""The verbs of the command line: hwsim's own, and those of installed packages. It knows their help and their modules,
and no option of theirs.

A package adds verbs by the entry point group `hwsim.verbs`. An entry point's name is the verb's, or VERB.ACTION for an
action of one of hwsim's verbs; its value is a Verb. `hwsim --help` imports the module that the entry point names, so
that module should be light.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint
from typing import Any

from hwsim.host.plugins import entry_points, loaded, object_of

GROUP = "hwsim.verbs"
RUN = "run, and look inside"
CHOOSE = "choose and compare"
NAMES = "devices, libraries, formats, schemes"
CHECK = "check"
#: Headings of `hwsim --help`, in order. Those of other packages' verbs follow.
TASKS = (RUN, CHOOSE, NAMES, CHECK)


@dataclass(frozen=True)
class Verb:
    """One verb, or one action of a verb.

    help: one line. example: a command without `hwsim`. task: the heading in `hwsim --help`; an action needs none.
    module: imported when the verb is used; has `configure(parser)` and `execute(arguments) -> exit code`.
    """

    help: str
    example: str
    module: str
    task: str = ""


def _own(name: str, task: str, text: str, example: str) -> tuple[str, Verb]:
    return name, Verb(text, example, f"hwsim.cli.{name}", task)


OWN: dict[str, Verb] = dict(
    (
        _own(
            "run",
            RUN,
            "run a GEMM scheme on a simulated device: bits, error, cycles, where the time went",
            "run --device h200 --format bf16 --m 4096 --n 4096 --k 4096 --no-exact --what-if",
        ),
        (
            "attention",
            Verb(
                "attention by the kernel that PyTorch runs on a device: bits, cycles, where the time went",
                "attention --device a100 --heads 16 --queries 4096 --width 128 --causal --no-exact",
                "hwsim.cli.attention_verb",
                RUN,
            ),
        ),
        _own(
            "blas",
            RUN,
            "run a program whose BLAS products are computed on a simulated device",
            "blas --device h200 --format tf32 -- python script.py",
        ),
        _own(
            "program",
            RUN,
            "print the program that a scheme becomes on a device",
            "program ascend910a sgemm-cube --m 128 --n 128 --k 128",
        ),
        _own(
            "mma",
            RUN,
            "run one matrix instruction on given operands: arrays from files, or one dot product",
            "mma v100 mma.m8n8k4.f32.f16.f16.f32 --a 1,2,3,4 --b 1,1,1,1 --c 0.5",
        ),
        _own(
            "explain",
            RUN,
            "one output element of a matrix instruction, stage by stage",
            "explain v100 mma.m8n8k4.f32.f16.f16.f32 --a 1,2,3,4 --b 1,1,1,1 --c 0.5",
        ),
        _own(
            "diff",
            RUN,
            "one GEMM computed in two ways: which elements differ, and from which k on",
            "diff --device h200 --device v100 --format fp16 --m 64 --n 64 --k 64",
        ),
        _own(
            "tune",
            CHOOSE,
            "the best blocking, order of tiles and instruction for a device, a scheme and a shape",
            "tune --device h200 --format bf16 --m 4096 --n 512 --k 1024",
        ),
        _own(
            "sweep",
            CHOOSE,
            "a grid of runs over devices, schemes, shapes and options, as a table",
            "sweep study.yaml --out rows.csv",
        ),
        _own(
            "plot",
            CHOOSE,
            "a figure of errors, rates, tiles or devices, as PNG, SVG or PDF",
            "plot error-over-k --device h200 --device b200 --scheme native --format bf16 --out errors.svg",
        ),
        _own(
            "compare",
            CHOOSE,
            "kernels measured with Nsight Compute beside simulated ones: time, error, correlation",
            "compare --ncu report.csv --map kernels.yaml --device h200",
        ),
        _own(
            "invariance",
            CHOOSE,
            "which batch sizes give a row of a library's product the same bits",
            "invariance --device h200 --library cublas --format bf16 --b-layout columns --n 4096 --k 14336 --m 1:512",
        ),
        _own(
            "sensitivity",
            CHOOSE,
            "how the cycles move when each assumed number of a device goes over its range",
            "sensitivity --device ascend910b3 --format fp16 --m 4096 --n 4096 --k 4096",
        ),
        _own(
            "devices",
            NAMES,
            "list the devices; show one with its sources; check a device file",
            "devices show h200 --sources",
        ),
        _own(
            "which",
            NAMES,
            "the devices with a matrix instruction of certain formats and arithmetic",
            "which --bits fp16 --accumulate fp32 --least-fraction-bits 24",
        ),
        _own(
            "libraries",
            NAMES,
            "list the GEMM libraries; show one's kernels with their sources; check a library file",
            "libraries show cublas-13",
        ),
        _own(
            "library",
            NAMES,
            "record what a GEMM library answers on this machine's GPU, and compare a sample with hwsim",
            "library record --device h200 --out my.npz --weight 4096x14336 --format bf16",
        ),
        _own("formats", NAMES, "list the number formats with their limits; show one", "formats show e4m3"),
        _own(
            "schemes",
            NAMES,
            "list the schemes; show one; say which run on a device",
            "schemes --device a100",
        ),
        _own(
            "golden",
            CHECK,
            "check bits against golden files; record new ones on hardware",
            "golden self --device h200 --out .",
        ),
        _own(
            "examples",
            RUN,
            "list the examples that come with hwsim; copy one to change it",
            "examples copy own_scheme",
        ),
        _own("selftest", CHECK, "whether this installation computes the bits and cycles that it should", "selftest"),
        _own("info", CHECK, "versions, kernels, threads, and where device files are looked for", "info"),
        _own(
            "completion",
            CHECK,
            "the lines that complete hwsim's verbs, options and names in bash, zsh or fish",
            "completion bash",
        ),
    )
)
#: Names that are no verbs, and where what they promise is.
FRAMEWORKS = {
    "torch": "a model is given in Python, by hwsim.torch.emulate, compare, diff and invariance (docs/torch.md)",
    "jax": "a function is given in Python, by hwsim.jax.emulated (docs/jax.md)",
    "triton": "a kernel is given in Python, by hwsim.triton (docs/triton.md)",
}
#: What the laboratory adds, a distribution of its own in hwsim's source tree.
LAB = ("reproduce", "bench", "golden.campaign", "golden.questions")


def known() -> dict[str, Verb]:
    """All verbs by name: hwsim's own, then those of installed packages.

    A broken one causes a warning and is left out.
    """
    return OWN | {name: verb for name, verb in _installed().items() if "." not in name and name not in OWN}


def verb_of(name: str) -> Verb | None:
    """The verb called `name`; hwsim's own are found without a look for packages."""
    return OWN.get(name) or known().get(name)


def actions(verb: str) -> dict[str, Verb]:
    """The actions that installed packages add to one of hwsim's verbs, by name."""
    start = f"{verb}."
    return {name.removeprefix(start): action for name, action in _installed().items() if name.startswith(start)}


def missing(verb: str, action: str = "") -> str | None:
    """The sentence for a verb, or an action of one, that the laboratory has, where it is not installed."""
    name = f"{verb}.{action}" if f"{verb}.{action}" in LAB else verb
    if name not in LAB or name in _installed():
        return None
    return f"hwsim {name.replace('.', ' ')} comes with the laboratory; install it from a checkout: pip install ./lab"


def _installed() -> dict[str, Verb]:
    return _loaded(entry_points(group=GROUP))


@lru_cache(maxsize=1)
def _loaded(points: tuple[EntryPoint, ...]) -> dict[str, Verb]:
    return loaded(points, object_of(Verb), "verb")


def module_of(verb: Verb) -> Any:
    """A verb's module; see `imported`."""
    return imported(verb.module)


def imported(module: str) -> Any:
    """Import a module by name; verbs' modules are imported here alone, so that unused verbs cost nothing."""
    was_enabled = gc.isenabled()
    gc.disable()  # what an import makes stays: looking through it for garbage is a tenth of the time
    try:
        return import_module(module)
    finally:
        if was_enabled:
            gc.enable()
