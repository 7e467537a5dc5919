"""`hwsim completion`: what a shell needs to complete verbs, options, and names of devices, schemes and formats.

bash and zsh by shtab; fish by the few lines here.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from hwsim.cli import command
from hwsim.cli.verb_parser import brief_of
from hwsim.devices import names
from hwsim.errors import UnsupportedError
from hwsim.formats import FORMATS
from hwsim.libraries.providers import known_libraries
from hwsim.schemes import schemes

SHELLS = ("bash", "zsh", "fish")
#: {destination of an argument: which names complete it}
COMPLETED = {
    "device": "devices",
    "devices": "devices",
    **dict.fromkeys(("scheme", "help_scheme"), "schemes"),
    "help_mapping": "devices",
    "library": "libraries",
    **dict.fromkeys(("format", "bits", "bits_b", "accumulate", "result", "output", "input_format"), "formats"),
}
#: Where the lines go.
PLACES = {
    "bash": "hwsim completion bash > ~/.local/share/bash-completion/completions/hwsim",
    "zsh": "hwsim completion zsh > a folder of $fpath/_hwsim",
    "fish": "hwsim completion fish > ~/.config/fish/completions/hwsim.fish",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    places = "; ".join(PLACES.values())
    parser.add_argument("shell", choices=SHELLS, help=f"the shell; for instance: {places}")


def execute(arguments: argparse.Namespace) -> int:
    """Print the lines."""
    parser, names = command.whole_parser(), _names()
    print("\n".join(_fish(parser, names)) if arguments.shell == "fish" else _by_shtab(parser, names, arguments.shell))
    return 0


def _names() -> dict[str, list[str]]:
    return {
        "devices": [name for name, _ in names()],
        "schemes": sorted([*schemes(), "auto"]),
        "formats": list(FORMATS),
        "libraries": sorted(known_libraries()),
    }


def _parsers(parser: argparse.ArgumentParser) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """(verb and action, parser) of a parser and all below it."""
    yield (), parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                for path, below in _parsers(sub):
                    yield (name, *path), below


def _by_shtab(parser: argparse.ArgumentParser, names: Mapping[str, list[str]], shell: str) -> str:
    try:
        import shtab  # optional
    except ModuleNotFoundError:
        raise UnsupportedError(
            f"completion for {shell} needs shtab: pip install 'hwsim[completion]' (fish needs nothing)"
        ) from None
    for _, sub in _parsers(parser):
        for action in sub._actions:
            kind = COMPLETED.get(action.dest)
            if kind is not None and action.choices is None and action.nargs != 0:
                completer: Any = action
                completer.complete = {"bash": f"_hwsim_{kind}", "zsh": f"({' '.join(names[kind])})"}
            elif action.metavar is not None and "FILE" in str(action.metavar):
                completer = action
                completer.complete = shtab.FILE
    lines = [f'_hwsim_{kind}() {{ compgen -W "{" ".join(words)}" -- "$1"; }}' for kind, words in names.items()]
    preamble: Any = {"bash": "\n".join(lines)}
    text: str = shtab.complete(parser, shell, preamble=preamble)
    return text


def _fish(parser: argparse.ArgumentParser, names: Mapping[str, list[str]]) -> Iterator[str]:
    yield "# hwsim completion fish"
    yield "complete -c hwsim -f"
    for path, sub in _parsers(parser):
        where = " ; and ".join(f"__fish_seen_subcommand_from {word}" for word in path) or "__fish_use_subcommand"
        for action in sub._actions:
            if isinstance(action, argparse._SubParsersAction):
                told = {choice.dest: choice.help for choice in action._choices_actions}
                texts = told
                for name in action.choices:
                    yield f"complete -c hwsim -n '{where}' -a {name} -d {_quoted(texts.get(name) or '')}"
                continue
            words = names.get(COMPLETED.get(action.dest, ""), [str(choice) for choice in action.choices or ()])
            values = f" -x -a {_quoted(' '.join(words))}" if words else " -r -F" if action.nargs != 0 else ""
            for option in action.option_strings:
                if option.startswith("--"):
                    text = _quoted(brief_of(action))
                    yield f"complete -c hwsim -n '{where}' -l {option[2:]}{values} -d {text}"
            if not action.option_strings and words:
                yield f"complete -c hwsim -n '{where}' -a {_quoted(' '.join(words))}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
