"""`hwsim golden`: check golden files, record new ones, renew the self sets. Installed packages add actions."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from hwsim.cli import verbs
from hwsim.cli.gpu_options import add_gpu_options, gpu_choice
from hwsim.cli.option_flags import whole
from hwsim.cli.progress import progress_bar
from hwsim.devices import load
from hwsim.devices.registry import shipped
from hwsim.errors import InputError
from hwsim.golden import gemms, self_made, simulated
from hwsim.golden.recording import record
from hwsim.golden.sums import NAME, check_sums, renew_sums, write_sums
from hwsim.golden.verify import Report, all_sets, verify
from hwsim.host.files import check_writable, make_folder
from hwsim.report.text.words import plural

JSON_HELP = "one JSON object on standard output"
TREE = Path(__file__).resolve().parents[2] / "tests" / "golden"  # there in a checkout only


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's actions."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)

    def action(name: str, text: str) -> argparse.ArgumentParser:
        sub = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.", allow_abbrev=False)
        sub.add_argument("--json", action="store_true", help=JSON_HELP)
        return sub

    _verify_options(action("verify", "compare every result of golden files with what hwsim computes, bit for bit"))
    _record_options(action("record", "run instructions on this machine's GPU and write a golden file"))
    _self_options(action("self", "what hwsim gives for every instruction, against the sets kept of it"))
    _sums_options(action("sums", "write SHA256SUMS, by which verify sees archives that are missing or changed"))
    for name, added in verbs.actions("golden").items():
        sub = action(name, added.help)
        sub.epilog = f"example: hwsim {added.example}"
        verbs.module_of(added).configure(sub)


def execute(arguments: argparse.Namespace) -> int:
    """Run the action."""
    actions = {"verify": _verify, "record": _record, "self": _self, "sums": _sums}
    if arguments.action in actions:
        return actions[arguments.action](arguments)
    code: int = verbs.module_of(verbs.actions("golden")[arguments.action]).execute(arguments)
    return code


def _verify_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="DIR",
        help="folders and .npz files (default: tests/golden of a source tree, and $HWSIM_GOLDEN_DIR)",
    )
    parser.add_argument("--device", metavar="NAME", default="", help="for files that do not name theirs")
    parser.add_argument("--only", metavar="TEXT", default="", help="sets whose key INSTRUCTION/SET contains this")
    parser.add_argument(
        "--first", type=whole(0), default=3, metavar="N", help="mismatches that are described, of each set (default 3)"
    )


def default_paths() -> list[Path]:
    """The golden sets of a source tree and the folder in HWSIM_GOLDEN_DIR, where they exist."""
    paths = [TREE] if TREE.is_dir() else []
    named = os.environ.get("HWSIM_GOLDEN_DIR")
    return [*paths, Path(named)] if named else paths


def _verify(arguments: argparse.Namespace) -> int:
    paths = arguments.paths or default_paths()
    if not paths:
        raise InputError(
            "no golden files: this is no source tree, and HWSIM_GOLDEN_DIR is not set; name a folder or file"
        )
    report = _report(paths, arguments)
    if arguments.json:
        print(
            json.dumps({"schema": "hwsim.golden-verify/1", "paths": [str(path) for path in paths]} | report.to_json())
        )
    else:
        print(report.to_text())
    return int(report.mismatches > 0)


def _report(paths: list[Path], arguments: argparse.Namespace) -> Report:
    """Verify sets of instructions and whole GEMMs under the paths. Raises InputError when there is nothing to
    compare.
    """
    device, only = arguments.device, arguments.only
    check_sums(paths)
    blocks = gemms.gemm_files(paths)
    rest = [path for path in paths if path not in blocks]
    parts = []
    if next(all_sets(rest, device=device, only=only), None) is not None:
        parts.append(verify(rest, simulated.mma, device=device, only=only, first=arguments.first))
    for path in blocks:
        if any(only in gemm.name for gemm in gemms.read_gemms(path)):
            parts.append(gemms.verify_gemms(path, simulated.gemm, device=device, only=only))
    joined = Report(
        tuple(place for part in parts for place in part.sets), tuple(place for part in parts for place in part.first)
    )
    if not joined.results:
        raise InputError(
            f"no golden set{f' with {arguments.only!r} in its key' if arguments.only else ''} was found; "
            "zero cases prove nothing"
        )
    return joined


def _record_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.npz", help="the golden file")
    add_gpu_options(parser, "hwsim's name of the device (default: the one that the GPU's name contains)")
    parser.add_argument(
        "--cases", type=whole(1), default=48, metavar="N", help="of each instruction and distribution (default 48)"
    )
    parser.add_argument("--operands", type=Path, metavar="FILE.npz", help="run these operands instead of drawn ones")
    parser.add_argument("--note", default="", metavar="TEXT", help="kept in the file")


def _record(arguments: argparse.Namespace) -> int:
    check_writable(arguments.out)
    if arguments.operands is not None and not arguments.operands.exists():
        raise InputError(f"--operands {arguments.operands}: no such file")
    results = record(
        arguments.out, cases=arguments.cases, operands=arguments.operands, note=arguments.note, **gpu_choice(arguments)
    )
    if arguments.json:
        print(json.dumps({"schema": "hwsim.golden-record/1", "path": str(arguments.out), "results": results}))
    else:
        print(f"{results:,} results in {arguments.out}; compare them: hwsim golden verify {arguments.out}")
    return 0


def _self_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="folder of DEVICE.npz (default: tests/golden/self of a source tree)"
    )
    parser.add_argument(
        "--device", action="append", metavar="NAME", help="device (repeatable; default: all that come with hwsim)"
    )
    parser.add_argument("--replace", action="store_true", help="replace files whose sets differ")


def _self(arguments: argparse.Namespace) -> int:
    folder = arguments.out
    if folder is None:
        if not TREE.is_dir():
            raise InputError("--out FOLDER is needed: this is no source tree")
        folder = TREE / "self"
    devices_shipped = shipped()
    if not (arguments.device or devices_shipped):
        raise InputError("other device files hide all that come with hwsim; name devices with --device")
    devices = [load(name) for name in arguments.device or devices_shipped]
    make_folder(folder)
    with progress_bar(quiet=arguments.json) as progress:
        changes = self_made.renew(devices, folder, simulated.mma, replace_files=arguments.replace, progress=progress)
    differing = [change for change in changes if not change.same and change.was_there]
    if any(not change.same and (arguments.replace or not change.was_there) for change in changes):
        renew_sums(folder)
    if arguments.json:
        print(
            json.dumps(
                {
                    "schema": "hwsim.golden-self/1",
                    "replaced": arguments.replace,
                    "devices": [change.to_json() for change in changes],
                }
            )
        )
    else:
        for change in changes:
            print(change.to_text(replaced=arguments.replace))
        if differing and not arguments.replace:
            print("nothing was replaced; if the change is meant: hwsim golden self --replace")
    return int(bool(differing) and not arguments.replace)


def _sums_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        metavar="DIR",
        help="folder of golden files (default: tests/golden of a source tree)",
    )


def _sums(arguments: argparse.Namespace) -> int:
    folder = arguments.folder or (TREE if TREE.is_dir() else None)
    if folder is None:
        raise InputError("DIR is needed: this is no source tree")
    count = write_sums(folder)
    if arguments.json:
        print(json.dumps({"schema": "hwsim.golden-sums/1", "file": str(folder / NAME), "archives": count}))
    else:
        print(f"{folder / NAME}: {plural(count, 'archive')}")
    return 0
