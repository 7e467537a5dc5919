"""The command line: verbs, exit codes, and error handling. Each verb is a module, imported on demand.

Exit codes: 0 done; 1 ran, but a result differs from its reference; 2 bad usage, a bad or missing file, or something
unsupported; 3 internal error; 130 interrupted; 141 the reader of a pipe has gone.
"""

from __future__ import annotations

import argparse
import gc
import io
import os
import re
import sys
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

from hwsim.cli.crash import report
from hwsim.errors import ConfigError, HwsimError, nearest

# A verb's module has `configure(parser)` and `execute(arguments) -> exit code`.
VERBS = {
    "run": "run a GEMM scheme on a simulated device: bits, error, cycles, where the time went",
    "devices": "list the devices; show one with its sources; check a device file",
    "libraries": "list the GEMM libraries; show one's kernels with their sources; check a library file",
    "library": "record what a GEMM library answers on this machine's GPU, and compare a sample with hwsim",
    "formats": "list the number formats with their limits; show one",
    "schemes": "list the schemes; show one; say which run on a device",
    "program": "print the program that a scheme becomes on a device",
    "blas": "run a program whose BLAS products are computed on a simulated device",
    "mma": "run one matrix instruction on given operands: arrays from files, or one dot product",
    "explain": "one output element of a matrix instruction, stage by stage",
    "diff": "one GEMM computed in two ways: which elements differ, and from which k on",
    "golden": "check bits against golden files; record new ones on hardware",
    "which": "the devices with a matrix instruction of certain formats and arithmetic",
    "tune": "the best blocking, order of tiles and instruction for a device, a scheme and a shape",
    "sweep": "a grid of runs over devices, schemes, shapes and options, as a table",
    "plot": "a figure of errors, rates, tiles or devices, as PNG, SVG or PDF",
    "compare": "kernels measured with Nsight Compute beside simulated ones: time, error, correlation",
    "invariance": "which batch sizes give a row of a library's product the same bits",
    "sensitivity": "how the cycles move when each assumed number of a device goes over its range",
    "reproduce": "a paper's experiment on simulated devices, as a table",
    "bench": "speed of the units' kernels beside NumPy's float32 matmul",
    "selftest": "whether this installation computes the bits and cycles that it should",
    "completion": "the lines that complete hwsim's verbs, options and names in bash, zsh or fish",
    "info": "versions, kernels, threads, and where device files are looked for",
}
#: Verbs by task, as `hwsim --help` lists them.
TASKS = {
    "run, and look inside": ("run", "blas", "program", "mma", "explain", "diff"),
    "choose and compare": ("tune", "sweep", "plot", "compare", "invariance", "sensitivity"),
    "devices, libraries, formats, schemes": ("devices", "which", "libraries", "library", "formats", "schemes"),
    "check": ("golden", "selftest", "reproduce", "bench", "info", "completion"),
}
#: A command of each verb, as its help shows it.
EXAMPLES = {
    "run": "run --device h200 --format bf16 --m 4096 --n 4096 --k 4096 --no-exact --what-if",
    "devices": "devices show h200 --sources",
    "libraries": "libraries show cublas-13",
    "library": "library record --device h200 --out my.npz --weight 4096x14336 --format bf16",
    "formats": "formats show e4m3",
    "schemes": "schemes --device a100",
    "program": "program ascend910a sgemm-cube --m 128 --n 128 --k 128",
    "blas": "blas --device h200 --format tf32 -- python script.py",
    "mma": "mma v100 mma.m8n8k4.f32.f16.f16.f32 --a 1,2,3,4 --b 1,1,1,1 --c 0.5",
    "explain": "explain v100 mma.m8n8k4.f32.f16.f16.f32 --a 1,2,3,4 --b 1,1,1,1 --c 0.5",
    "diff": "diff --device h200 --device v100 --format fp16 --m 64 --n 64 --k 64",
    "golden": "golden verify tests/golden",
    "which": "which --bits fp16 --accumulate fp32 --least-fraction-bits 24",
    "tune": "tune --device h200 --format bf16 --m 4096 --n 512 --k 1024",
    "sweep": "sweep study.yaml --out rows.csv",
    "plot": "plot error-over-k --device h200 --device b200 --scheme native --format bf16 --out errors.svg",
    "compare": "compare --ncu report.csv --map kernels.yaml --device h200",
    "invariance": "invariance --device h200 --library cublas --format bf16 --n 4096 --k 14336 --m 1:8192",
    "sensitivity": "sensitivity --device ascend910b3 --format fp16 --m 4096 --n 4096 --k 4096",
    "reproduce": "reproduce sgemm-cube fig10",
    "bench": "bench --quick",
    "selftest": "selftest",
    "completion": "completion bash",
    "info": "info",
}
#: -1e-3, -inf, -1,2, -3:-1, in which argparse would see an option; it takes -1 and -0.5 for what they are.
NEGATIVE = re.compile(r"(?!-(\d+|\d*\.\d+)$)-(\d|\.\d|inf|nan)", re.IGNORECASE)
WIDTH, COLUMN = 100, 13  # of help text
INTERNAL_ERROR, BROKEN_PIPE = 3, 141
EPILOG = (
    "exit codes: 0 done; 1 a result differs; 2 bad usage, bad or missing file, unsupported; 3 internal error; "
    "130 interrupted"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's) and return its exit code; an interrupt goes through."""
    given = list(sys.argv[1:] if argv is None else argv)
    if sys.stderr is None:  # closed; print would write to standard output instead
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115  (for as long as the process runs)
    if sys.stdout is None:
        return _fail("standard output is closed; to do without it, write > /dev/null")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal without UTF-8 is no reason to fail
    try:
        with _warnings_on_stderr():
            code = _run(given)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _drop_stdout()
        return BROKEN_PIPE
    except ConfigError as error:
        several = "" if len(error.problems) == 1 else f"{len(error.problems)} problems in the {error.kind} file\n"
        return _fail(f"{several}{error}", error.exit_code)
    except HwsimError as error:
        return _fail(str(error), error.exit_code)
    except MemoryError as error:
        return _fail(f"not enough memory for this problem{f' ({error})' if str(error) else ''}; take a smaller one")
    except OSError as error:
        if error.filename is None:
            _drop_stdout()
        place = error.filename if error.filename is not None else "standard output"
        return _fail(f"{place}: {error.strerror or error}")
    except Exception as error:  # whatever else is our own mistake
        return _fail(report(error, given), INTERNAL_ERROR)


def parser_for(verb: str | None) -> argparse.ArgumentParser:
    """The parser, with the options of `verb` alone; other verbs' modules are not imported."""
    return _parser({verb} if verb is not None else set())


def whole_parser() -> argparse.ArgumentParser:
    """The parser with the options of all verbs, each with a line of help; `hwsim --help` lists them by task instead."""
    return _parser(set(VERBS), listed=True)


def _parser(configured: set[str], *, listed: bool = False) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hwsim",
        description="Bit-exact and cycle-level simulation of matrix engines.",
        epilog=f"{_by_task()}\n\n{textwrap.fill(EPILOG, WIDTH)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print versions and leave")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs", help="one of those below")
    for name, text in VERBS.items():
        line: dict[str, Any] = {"help": text} if listed else {}
        sub = verbs.add_parser(
            name,
            **line,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=f"example: hwsim {EXAMPLES[name]}\n\n{textwrap.fill(EPILOG, WIDTH)}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if name in configured:
            _module(name).configure(sub)
    return parser


def _by_task() -> str:
    lines = []
    for task, names in TASKS.items():
        lines += ["", f"{task}:"]
        for name in names:
            lines += textwrap.wrap(
                f"  {name:<{COLUMN}}{VERBS[name]}", WIDTH, subsequent_indent=" " * (COLUMN + 2), drop_whitespace=True
            )
    return "\n".join([*lines, "", "hwsim VERB --help says more, with an example."]).strip("\n")


def _module(verb: str) -> Any:
    """Import a verb's module; the only place that does, so that unused verbs cost nothing."""
    was_enabled = gc.isenabled()
    gc.disable()  # what an import makes stays: looking through it for garbage is a tenth of the time
    try:
        return import_module(f"hwsim.cli.{verb}")
    finally:
        if was_enabled:
            gc.enable()


def _run(given: list[str]) -> int:
    verb = next((word for word in given if not word.startswith("-")), None)
    parser = parser_for(verb)
    try:
        if verb is not None and verb not in VERBS:
            parser.error(f"no verb '{verb}'; there are {', '.join(VERBS)}{nearest(verb, list(VERBS))}")
        arguments, unknown = parser.parse_known_args(_with_negative_values(parser, verb, given))
        if unknown:
            parser.error(f"unrecognized arguments: {' '.join(unknown)}{_near_option(parser, verb, unknown)}")
        if arguments.version:
            print(_module("info").version_line())
            return 0
        if verb is None:
            parser.print_help(sys.stderr)
            return 2
        result: int = _module(verb).execute(arguments)
        return result
    except SystemExit as leaving:  # argparse has said why
        return leaving.code if isinstance(leaving.code, int) else 2


def _with_negative_values(parser: argparse.ArgumentParser, verb: str | None, given: Sequence[str]) -> list[str]:
    """The words, with a value that begins as a negative number joined to the option before it: --a=-1,2.

    Options of the verb's own that take several values are left as they are.
    """
    words: list[str] = []
    of_verb = parser if verb is None else _verb_parser(parser, verb)
    if any(action.nargs == argparse.REMAINDER for action in of_verb._actions):
        return list(given)  # among them is another program's command line
    several = {name for name, action in of_verb._option_string_actions.items() if action.nargs not in (None, "?")}
    for word in given:
        after_option = bool(words) and words[-1].startswith("--") and len(words[-1]) > 2 and "=" not in words[-1]
        if after_option and words[-1] not in several and NEGATIVE.match(word):
            words[-1] = f"{words[-1]}={word}"
        else:
            words.append(word)
    return words


def _verb_parser(parser: argparse.ArgumentParser, verb: str) -> argparse.ArgumentParser:
    """The parser of a verb's own words."""
    verbs = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    of_verb: argparse.ArgumentParser = verbs.choices[verb]
    return of_verb


def _near_option(parser: argparse.ArgumentParser, verb: str | None, unknown: Sequence[str]) -> str:
    """The suggestion for the first unknown option, from those of the verb."""
    name = next((word.partition("=")[0] for word in unknown if word.startswith("--")), None)
    if name is None or verb is None:
        return ""
    return nearest(name, list(_verb_parser(parser, verb)._option_string_actions))


def _fail(message: str, code: int = 2) -> int:
    print(f"hwsim: error: {message}", file=sys.stderr)
    return code


@contextmanager
def _warnings_on_stderr() -> Iterator[None]:
    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        print(f"hwsim: warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.showwarning = show
        yield


def _drop_stdout() -> None:
    """Discard what is still buffered for stdout; otherwise Python would fail once more at exit."""
    with suppress(OSError, ValueError):  # not a real file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
