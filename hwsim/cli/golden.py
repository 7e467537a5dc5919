"""`hwsim golden`: check golden files, record new ones, run campaigns on hardware, list open questions, renew the self
sets.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from hwsim_lab.golden.campaign import Summary, campaign_on_gpu
from hwsim_lab.golden.questions import QUESTIONS, write_questions

from hwsim.cli.options import whole
from hwsim.cli.progress import progress_bar
from hwsim.devices import load
from hwsim.devices.registry import shipped
from hwsim.errors import InputError, nearest
from hwsim.golden import gemms, self_made, simulated
from hwsim.golden.distributions import DISTRIBUTIONS
from hwsim.golden.recorder import DEFAULT_WGMMA_N
from hwsim.golden.recording import record
from hwsim.golden.sums import NAME, check_sums, renew_sums, write_sums
from hwsim.golden.verify import Report, all_sets, verify
from hwsim.host.files import check_writable, make_folder
from hwsim.host.threads import MOST
from hwsim.report.text.words import plural, table

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
    _campaign_options(action("campaign", "compare this machine's GPU with hwsim at length, and keep a summary"))
    _questions_options(action("questions", "the open questions to hardware, and their operands as a file"))
    _self_options(action("self", "what hwsim gives for every instruction, against the sets kept of it"))
    _sums_options(action("sums", "write SHA256SUMS, by which verify sees archives that are missing or changed"))


def execute(arguments: argparse.Namespace) -> int:
    """Run the action."""
    actions = {
        "verify": _verify,
        "record": _record,
        "campaign": _campaign,
        "questions": _questions,
        "self": _self,
        "sums": _sums,
    }
    return actions[arguments.action](arguments)


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
    found = [TREE] if TREE.is_dir() else []
    named = os.environ.get("HWSIM_GOLDEN_DIR")
    return [*found, Path(named)] if named else found


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
    joined = Report(tuple(x for part in parts for x in part.sets), tuple(x for part in parts for x in part.first))
    if not joined.results:
        raise InputError(
            f"no golden set{f' with {arguments.only!r} in its key' if arguments.only else ''} was found; "
            "zero cases prove nothing"
        )
    return joined


def _gpu_options(parser: argparse.ArgumentParser, device: str) -> None:
    parser.add_argument("--device", metavar="NAME", default="", help=device)
    parser.add_argument(
        "--instructions", metavar="LIST", help="names with commas, * stands for anything (default: all the GPU has)"
    )
    parser.add_argument("--distributions", metavar="LIST", help="names with commas (default: all eight)")
    parser.add_argument("--seed", type=whole(0), default=1, metavar="N", help="of the operands (default 1)")
    parser.add_argument("--arch", metavar="SM", help="target that is built, as 90a (default: the GPU's)")
    parser.add_argument("--wgmma-n", metavar="LIST", help="columns N of wgmma that are built (default 8,64,256)")


def _record_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.npz", help="the golden file")
    _gpu_options(parser, "hwsim's name of the device (default: the one that the GPU's name contains)")
    parser.add_argument(
        "--cases", type=whole(1), default=48, metavar="N", help="of each instruction and distribution (default 48)"
    )
    parser.add_argument("--operands", type=Path, metavar="FILE.npz", help="run these operands instead of drawn ones")
    parser.add_argument("--note", default="", metavar="TEXT", help="kept in the file")


def _campaign_options(parser: argparse.ArgumentParser) -> None:
    _gpu_options(parser, "hwsim's device (default: the one that the GPU's name contains)")
    parser.add_argument(
        "--outputs", type=float, default=1e9, metavar="N", help="results to compare, then stop (default 1e9)"
    )
    parser.add_argument("--seconds", type=float, default=480.0, metavar="S", help="stop after so long (default 480)")
    parser.add_argument("--threads", type=whole(1, MOST), metavar="N", help="host threads (default: all)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="write campaign.json and campaign.md there")


def _chosen(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options common to recording and campaigns, as arguments; names are checked before anything is built."""
    distributions = tuple(DISTRIBUTIONS) if arguments.distributions is None else _words(arguments.distributions)
    for name in distributions:
        if name not in DISTRIBUTIONS:
            raise InputError(
                f"--distributions: {name!r} is none; allowed: {', '.join(DISTRIBUTIONS)}"
                f"{nearest(name, tuple(DISTRIBUTIONS))}"
            )
    try:
        columns = DEFAULT_WGMMA_N if arguments.wgmma_n is None else tuple(map(int, _words(arguments.wgmma_n)))
    except ValueError:
        raise InputError(f"--wgmma-n {arguments.wgmma_n}: allowed: integers with commas") from None
    return {
        "device": arguments.device,
        "arch": arguments.arch,
        "seed": arguments.seed,
        "wgmma_n": columns,
        "instructions": None if arguments.instructions is None else list(_words(arguments.instructions)),
        "distributions": distributions,
    }


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(","))


def _record(arguments: argparse.Namespace) -> int:
    check_writable(arguments.out)
    if arguments.operands is not None and not arguments.operands.exists():
        raise InputError(f"--operands {arguments.operands}: no such file")
    results = record(
        arguments.out, cases=arguments.cases, operands=arguments.operands, note=arguments.note, **_chosen(arguments)
    )
    if arguments.json:
        print(json.dumps({"schema": "hwsim.golden-record/1", "path": str(arguments.out), "results": results}))
    else:
        print(f"{results:,} results in {arguments.out}; compare them: hwsim golden verify {arguments.out}")
    return 0


def _campaign(arguments: argparse.Namespace) -> int:
    if arguments.outputs < 1 or arguments.seconds <= 0:
        raise InputError(
            f"--outputs {arguments.outputs:g} --seconds {arguments.seconds:g}: allowed: at least 1, above 0"
        )

    def tell(summary: Summary) -> None:
        print(
            f"hwsim: {summary.seconds:.0f} s: {summary.results:,} results, {summary.mismatches:,} differ",
            file=sys.stderr,
            flush=True,
        )

    chosen = _chosen(arguments)
    if arguments.out is not None:
        make_folder(arguments.out)
    summary = campaign_on_gpu(
        simulated.mma,
        has=simulated.has,
        outputs=int(arguments.outputs),
        seconds=arguments.seconds,
        threads=arguments.threads,
        out=arguments.out,
        progress=tell,
        **chosen,
    )
    if arguments.json:
        print(json.dumps({"schema": "hwsim.golden-campaign/1"} | summary.to_json()))
    else:
        print(summary.to_markdown(), end="")
        for miss in summary.first:
            print(miss.replay)
    if not summary.results:
        raise InputError("the campaign compared no result; give it more --seconds")
    return int(summary.mismatches > 0)


def _questions_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="questions (default: all)")
    parser.add_argument("--out", type=Path, metavar="FILE.npz", help="write their operands as a golden file")


def _questions(arguments: argparse.Namespace) -> int:
    known = QUESTIONS()
    for name in arguments.names:
        if name not in known:
            raise InputError(f"no question {name!r}; there are {', '.join(known)}{nearest(name, tuple(known))}")
    chosen = [known[name] for name in arguments.names] or list(known.values())
    results = None
    if arguments.out is not None:
        check_writable(arguments.out)
        results = write_questions(arguments.out, chosen)
    if arguments.json:
        rows = [
            {
                "name": x.name,
                "text": x.text,
                "hardware": x.hardware,
                "instruction": x.instruction.name,
                "recordable": x.recordable,
                "sets": {name: len(dots) for name, dots in x.sets.items()},
                "answers": list(x.candidates),
            }
            for x in chosen
        ]
        path = None if arguments.out is None else str(arguments.out)
        print(json.dumps({"schema": "hwsim.golden-questions/1", "questions": rows, "path": path, "results": results}))
        return 0
    for question in chosen:
        how = "hwsim golden record --operands" if question.recordable else "the vendor's tools"
        print(f"{question.name}: {question.text}")
        print(f"  {question.hardware}, {question.instruction.name}, by {how}")
        print(
            "\n".join(
                table([(name, f"{len(dots)} dot products") for name, dots in question.sets.items()], indent="    ")
            )
        )
    if results is not None:
        print(f"{results:,} results to record, operands in {arguments.out}")
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
    own = shipped()
    if not (arguments.device or own):
        raise InputError("other device files hide all that come with hwsim; name devices with --device")
    devices = [load(name) for name in arguments.device or own]
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
