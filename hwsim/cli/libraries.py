"""`hwsim libraries`: list tables of GEMM libraries' kernels, show them with sources, validate a file."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from hwsim.libraries.model import load, names
from hwsim.libraries.providers import known_libraries
from hwsim.report.text.library_text import library_text, sources_text
from hwsim.report.text.provenance_text import evidence_text
from hwsim.report.text.words import table

JSON = {"action": "store_true", "default": argparse.SUPPRESS, "help": "one JSON object on standard output"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's actions."""
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions (without one: list)")
    actions.add_parser(
        "list", help="name and title of every table of kernels; the libraries that run takes"
    ).add_argument("--json", **JSON)  # type: ignore[arg-type]
    show = actions.add_parser("show", help="one library: its kernels, its slices of K", allow_abbrev=False)
    show.add_argument("library", metavar="NAME", help="library name or YAML file")
    show.add_argument("--sources", action="store_true", help="every number with its evidence and source")
    show.add_argument("--json", **JSON)  # type: ignore[arg-type]
    check = actions.add_parser("check", help="check a library file; all its problems at once", allow_abbrev=False)
    check.add_argument("library", metavar="FILE", help="YAML file (or name) of a library")
    check.add_argument("--json", **JSON)  # type: ignore[arg-type]


def execute(arguments: argparse.Namespace) -> int:
    """Run the action."""
    if arguments.action in (None, "list"):
        libraries = [load(name) for name in names()]
        if arguments.json:
            rows = [
                {"name": library.name, "title": library.title, "families": list(library.families)}
                for library in libraries
            ]
            print(json.dumps({"schema": "hwsim.libraries.model/1", "libraries": rows, "to_run": known_libraries()}))
        else:
            shown = [(library.name, library.title, ", ".join(library.families)) for library in libraries]
            print("\n".join(table(shown, ("name", "title", "families"), indent="")))
            print(f"\nhwsim run --library NAME takes: {', '.join(known_libraries())}")
        return 0
    is_file = arguments.library.endswith((".yaml", ".yml")) or "/" in arguments.library
    library = load(Path(arguments.library) if is_file else arguments.library)
    if arguments.json:
        facts = {"name": library.name, "library_sha256": library.sha256}
        whole = {"library": library.model_dump(mode="json", exclude_none=True)} if arguments.action == "show" else {}
        print(json.dumps({"schema": f"hwsim.library-{arguments.action}/1", **facts, **whole}))
    elif arguments.action == "show":
        print(sources_text(library) if arguments.sources else library_text(library))
    else:
        levels = evidence_text(library.evidence)
        print(f"{arguments.library}: library {library.name} is right; evidence: {levels}")
    return 0
