"""The command line: verbs, exit codes, and error handling. Each verb is a module, imported on demand.

Exit codes: 0 done; 1 ran, but a result differs from its reference; 2 bad usage, a bad or missing file, or something
unsupported; 3 internal error; 130 interrupted; 141 the reader of a pipe has gone.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from hwsim.cli.crash import report
from hwsim.cli.progress import print_beside
from hwsim.cli.verb_parser import VerbParser
from hwsim.cli.verbs import FRAMEWORKS, LAB, OWN, TASKS, Verb, imported, known, missing, module_of, verb_of
from hwsim.errors import ConfigError, DeadlockError, HwsimError, closest, nearest

#: -1e-3, -inf, -1,2, -3:-1, in which argparse would see an option; it takes -1 and -0.5 for what they are.
NEGATIVE = re.compile(r"(?!-(\d+|\d*\.\d+)$)-(\d|\.\d|inf|nan)", re.IGNORECASE)
#: FILE.py:NAME
SCHEME_FILE = re.compile(r"[^=]+\.py:\w+")
NAMED = "hwsim.cli.named"  # it knows devices, schemes and libraries: imported for an error alone
WIDTH, COLUMN = 100, 13  # of help text
INTERNAL_ERROR, BROKEN_PIPE = 3, 141
EPILOG = (
    "exit codes: 0 done; 1 a result differs; 2 bad usage, bad or missing file, unsupported; 3 internal error; "
    "130 interrupted"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's) and return its exit code; an interrupt goes through."""
    words = list(sys.argv[1:] if argv is None else argv)
    if sys.stderr is None:  # closed; print would write to standard output instead
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115  (for as long as the process runs)
    if sys.stdout is None:
        return _fail("standard output is closed; to do without it, write > /dev/null")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal without UTF-8 is no reason to fail
    try:
        with _warnings_on_stderr():
            code = _run(words)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _drop_stdout()
        return BROKEN_PIPE
    except ConfigError as error:
        several = "" if len(error.problems) == 1 else f"{len(error.problems)} problems in the {error.kind} file\n"
        return _fail(f"{several}{error}", error.exit_code)
    except DeadlockError as error:  # of a program that hwsim wrote
        return _fail(report(error, words), INTERNAL_ERROR)
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
        return _fail(report(error, words), INTERNAL_ERROR)


def parser_for(verb: str | None, scheme_files: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser, with the options of `verb` alone; other verbs' modules are not imported.

    scheme_files: schemes named as FILE.py:NAME, whose options are flags too.
    """
    if verb in OWN:
        return _parser(OWN, {verb}, scheme_files)
    return _parser(known(), {verb} if verb is not None else set(), scheme_files)


def whole_parser() -> argparse.ArgumentParser:
    """The parser with the options of all verbs, each with a line of help; `hwsim --help` lists them by task instead."""
    verbs = known()
    return _parser(verbs, set(verbs), listed=True)


def _parser(
    verbs: Mapping[str, Verb], configured: Set[str], scheme_files: Sequence[str] = (), *, listed: bool = False
) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hwsim",
        description="Bit-exact and cycle-level simulation of matrix engines.",
        epilog=f"{_by_task(verbs)}\n\n{textwrap.fill(EPILOG, WIDTH)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print versions and leave")
    subparsers = parser.add_subparsers(
        dest="verb", metavar="VERB", title="verbs", help="one of those below", parser_class=VerbParser
    )
    for name, verb in verbs.items():
        line: dict[str, Any] = {"help": verb.help} if listed else {}
        sub = subparsers.add_parser(
            name,
            **line,
            description=f"{verb.help[0].upper()}{verb.help[1:]}.",
            epilog=f"example: hwsim {verb.example}\n\n{textwrap.fill(EPILOG, WIDTH)}",
            scheme_files=scheme_files,
        )
        if name in configured:
            module_of(verb).configure(sub)
    return parser


def _by_task(verbs: Mapping[str, Verb]) -> str:
    lines = []
    for task in dict.fromkeys((*TASKS, *(verb.task for verb in verbs.values()))):
        lines += ["", f"{task}:"]
        for name, verb in verbs.items():
            if verb.task == task:
                lines += textwrap.wrap(
                    f"  {name:<{COLUMN}}{verb.help}", WIDTH, subsequent_indent=" " * (COLUMN + 2), drop_whitespace=True
                )
    return "\n".join([*lines, "", "hwsim VERB --help says more, with an example."]).strip("\n")


def _run(words: list[str]) -> int:
    verb, action = [*(word for word in words if not word.startswith("-")), None, None][:2]
    if verb is not None and (sentence := missing(verb, action or "")):
        return _fail(sentence)
    parser, verb_entry = parser_for(verb, _scheme_files(words)), verb_of(verb) if verb is not None else None
    try:
        if verb is not None and verb_entry is None:
            if verb in FRAMEWORKS:
                parser.error(f"no verb '{verb}': {FRAMEWORKS[verb]}")
            verbs = list(known())
            parser.error(f"no verb '{verb}'; there are {', '.join(verbs)}{nearest(verb, [*verbs, *LAB])}")
        arguments, unknown = parser.parse_known_args(_with_negative_values(parser, verb, words))
        if unknown:
            _refuse(
                parser,
                verb,
                unknown,
                "" if verb_entry is None else getattr(module_of(verb_entry), "UNKNOWN_OPTION", ""),
            )
        if arguments.version:
            print(module_of(OWN["info"]).version_line())
            return 0
        if verb_entry is None:
            parser.print_help(sys.stderr)
            return 2
        result: int = module_of(verb_entry).execute(arguments)
        return result
    except SystemExit as leaving:  # argparse has said why
        return leaving.code if isinstance(leaving.code, int) else 2


def _scheme_files(words: Sequence[str]) -> list[str]:
    """The words that name a scheme in a file, FILE.py:NAME."""
    values = [word.partition("=")[2] if word.startswith("--") else word for word in words]
    return [value for value in dict.fromkeys(values) if SCHEME_FILE.fullmatch(value)]


def _with_negative_values(parser: argparse.ArgumentParser, verb: str | None, arguments: Sequence[str]) -> list[str]:
    """The words, with a value that begins as a negative number joined to the option before it: --a=-1,2.

    Options of the verb's own that take several values are left as they are.
    """
    words: list[str] = []
    of_verb = parser if verb is None else _verb_parser(parser, verb)
    if any(action.nargs == argparse.REMAINDER for action in of_verb._actions):
        return list(arguments)  # among them is another program's command line
    several = {name for name, action in of_verb._option_string_actions.items() if action.nargs not in (None, "?")}
    for word in arguments:
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


def _near_flag(name: str, known_flags: Sequence[str]) -> str:
    """The flag spelt most like one, as a hint; the dashes that all have do not make two alike."""
    near = closest(name.removeprefix("--"), [flag.removeprefix("--") for flag in known_flags if flag.startswith("--")])
    return f"; did you mean '--{near}'?" if near else ""


def _refuse(parser: argparse.ArgumentParser, verb: str | None, unknown: Sequence[str], advice: str) -> NoReturn:
    """Refuse words that the verb does not know, below the verb's usage; the words before a verb below the program's.

    advice: the verb's own, where it has some.
    """
    of_verb = parser if verb is None else _verb_parser(parser, verb)
    name = next((word.partition("=")[0] for word in unknown if word.startswith("--")), "")
    known_flags = list(of_verb._option_string_actions)
    if advice:  # other verbs have other options: a near one here begins alike
        known_flags = [flag for flag in known_flags if flag[:3] == name[:3]]
    hint = _near_flag(name, known_flags) if name and name not in known_flags and verb is not None else ""
    if verb is not None and not name:
        lacking = imported(NAMED).without_option(unknown, known_flags)
        hint = lacking or f"; hwsim {verb} --help shows the options that take a value"
    if isinstance(of_verb, VerbParser) and name in of_verb.elsewhere:
        hint = f"; {of_verb.elsewhere[name]}"
    more = f". {advice}" if advice else ""
    of_verb.error(f"unrecognized arguments: {' '.join(unknown)}{hint}{more}")


def _fail(message: str, code: int = 2) -> int:
    print(f"hwsim: error: {message}", file=sys.stderr)
    return code


@contextmanager
def _warnings_on_stderr() -> Iterator[None]:
    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        print_beside(f"hwsim: warning: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.showwarning = show
        yield


def _drop_stdout() -> None:
    """Discard what is still buffered for stdout; otherwise Python would fail once more at exit."""
    with suppress(OSError, ValueError):  # not a real file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
