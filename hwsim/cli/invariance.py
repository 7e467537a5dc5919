"""`hwsim invariance`: which batch sizes give a row of a library's product the same bits."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from statistics import fmean
from typing import Any

from hwsim.cli.progress import progress_bar
from hwsim.cli.report_option import add_report, check_report, report_files, report_note
from hwsim.errors import HwsimError, InputError
from hwsim.gemm.option_types import WHOLE
from hwsim.host.files import check_outputs
from hwsim.libraries.gemm_call import PYTORCH, GemmCall
from hwsim.libraries.kernel_choice import LibraryChoice
from hwsim.report.page.invariance_page import invariance_page
from hwsim.report.text.library_text import kernel_text, working_slices
from hwsim.report.text.words import plural, run_text, runs
from hwsim.request.declarations import LIBRARY
from hwsim.result import plain
from hwsim.studies.invariance import BatchClass, batch_classes, other_calls

RANGES, KERNELS = 6, 3  # that a line shows
MOST_SIZES = 1_000_000
#: By format, PyTorch's switch of torch.backends.cuda.matmul; its second value allows slices of K.
PYTORCH_SWITCHES = {
    "fp16": "allow_fp16_reduced_precision_reduction",
    "bf16": "allow_bf16_reduced_precision_reduction",
}
OF_CALL = ("reductions", "workspace_bytes", "lt_workspace_bytes")  # options of a library that a call has


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("--device", required=True, metavar="NAME", help="device name or YAML file")
    parser.add_argument(
        "--library", required=True, metavar="NAME", help="GEMM library, as cublas, or a file of its answers (.npz)"
    )
    parser.add_argument("--format", required=True, metavar="NAME", help="format of the operands")
    parser.add_argument("--n", required=True, type=int, metavar="N", help="columns of the weight")
    parser.add_argument("--k", required=True, type=int, metavar="N", help="rows of the weight")
    parser.add_argument(
        "--m", required=True, metavar="A:B[:STEP]", help="numbers of rows, B among them; or with commas"
    )
    parser.add_argument("--output", metavar="NAME", help="format of the result (default: what the unit gives)")
    parser.add_argument("--accumulate", choices=("fast", "promoted"), help="of e4m3")
    parser.add_argument("--a-layout", choices=("rows", "columns"), default="rows", help="storage order of A")
    parser.add_argument(
        "--b-layout",
        choices=("rows", "columns"),
        default="rows",
        help="columns: a linear layer's weight, (n, k) by rows",
    )
    for option in LIBRARY:
        if option.name in OF_CALL:
            parser.add_argument(
                option.flag,
                type=int if option.type is WHOLE else str,
                choices=option.choices or None,
                metavar=option.metavar.upper() if option.type is WHOLE else None,
                help=f"{option.help} (default: {option.default_text})",
            )
    parser.add_argument("--bias", action="store_true", help="with a bias, as F.linear adds it: another library call")
    add_report(parser, "--device h200 --library cublas --format bf16 --n 4096 --k 4096 --m 1:512")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output, nothing else there")


def execute(arguments: argparse.Namespace) -> int:
    """Print the classes, what differs between them, and what to do about it."""
    sizes = sizes_of(arguments.m)
    check_report(arguments.report)
    check_outputs(report_files(arguments.report))
    call = {
        name: getattr(arguments, name) for name in ("n", "k", "device", "library", "format", "output", "accumulate")
    }
    call |= {"a_layout": arguments.a_layout, "b_layout": arguments.b_layout, "bias": arguments.bias}
    call |= {name: getattr(arguments, name) for name in OF_CALL if getattr(arguments, name) is not None}
    with progress_bar(quiet=False, stage="asking for batch sizes") as progress:
        classes = batch_classes(m=sizes, progress=progress, **call)
    notes = [_note(arguments.library, other_calls(**call)), _estimated(classes, arguments.device)]
    note = "; ".join(text for text in notes if text)
    records = [_plain(batch_class, arguments.k) for batch_class in classes]
    advice = _advice(classes, is_pinned=arguments.library != PYTORCH)
    headline, advice = _headline(classes, arguments), _or([*advice, *_without_slices(classes, sizes, call)])
    answer = {"schema": "hwsim.invariance/1", **call, "note": note, "classes": records}
    if arguments.report is not None:
        title = f"Batch sizes of {arguments.library} on {arguments.device}, {arguments.format}"
        lead = [f"{headline[0]}: {headline[1]}", *([note] if note else [])]
        invariance_page(title, lead, advice, plain(answer)).write(arguments.report)
        print(f"hwsim: {report_note(arguments.report)}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(answer))
    else:
        print("\n".join([*headline, *_class_lines(classes, arguments.k)]))
        for line in ["What to do for equal bits:", *(f"  {line}" for line in advice)] if advice else []:
            print(line)
        if note:
            print(f"Note: {note}")
    return 0


def _plain(batch_class: BatchClass, size_k: int) -> dict[str, Any]:
    """A class as plain data ready for JSON. size_k: K of the products."""
    return {
        "m": runs(batch_class.sizes_m),
        "count": len(batch_class.sizes_m),
        "kernel": batch_class.choices[0].family,
        **batch_class.choices[0].numbers,
        "split_k": batch_class.choices[0].slices,
        "kernels": [
            {
                "kernel": choice.family,
                "split_k": choice.slices,
                "working_slices": working_slices(choice.schedule, size_k, is_known=choice.known),
            }
            for choice in batch_class.choices
        ],
        "known": batch_class.choices[0].known,
        "equal_rows": batch_class.has_equal_rows,
        "confidence": round(fmean(batch_class.confidences), 4),
        "least_confidence": round(min(batch_class.confidences), 4),
    }


def _note(library: str, calls: list[GemmCall]) -> str:
    """What a user's file has for the weight, as options, where it has nothing for the call; nothing for none."""
    if not calls:
        return ""
    options = " or ".join(map(_options, calls))
    return f"{library} has this weight for other calls alone: none of its answers is taken; for those: {options}"


def _estimated(classes: list[BatchClass], device: str) -> str:
    """Whether the kernels are an estimate of hwsim's, on a chip that the library was not asked on."""
    if not any(choice.is_estimated for batch_class in classes for choice in batch_class.choices):
        return ""
    return (
        f"what the library runs on {device} is not known: kernels and slices are hwsim's estimate, the probabilities "
        "how often that is right on chips where it is known; `hwsim library record` asks the library on a GPU"
    )


def _options(call: GemmCall) -> str:
    words = ["--output", call.result]
    words += [] if call.accumulate is None else ["--accumulate", call.accumulate]
    words += ["--bias"] if call.bias else []
    return " ".join([*words, "--a-layout", call.a_layout, "--b-layout", call.b_layout])


def sizes_of(text: str) -> list[int]:
    """`1:8192` (both ends), `1:8192:8`, or `1,7,64`. Raises InputError for anything else."""
    try:
        if ":" in text:
            first, last, *rest = (int(part) for part in text.split(":"))
            step = rest[0] if rest else 1
            is_range = len(rest) < 2 and step >= 1 and 1 <= first <= last and (last - first) // step < MOST_SIZES
            values = list(range(first, last + 1, step)) if is_range else []
        else:
            values = [int(part) for part in text.split(",")]
    except ValueError:
        values = []
    if not values or min(values) < 1:
        raise InputError(
            f"--m {text}: allowed: A:B or A:B:STEP with 1 <= A <= B and STEP of at least 1, at most {MOST_SIZES:,} "
            "numbers, or integers with commas"
        )
    return values


def _padding(sizes: tuple[int, ...]) -> str:
    """To which m of a class others are padded: its largest, and up to where it goes on without a gap."""
    first, last = max(runs(sizes), key=lambda run: run[1] - run[0])
    whole = f"; {first:,} to {last:,} need no padding" if first < last else ""
    return f"m up to {max(sizes):,} can be padded to {max(sizes):,}{whole}"


def _headline(classes: list[BatchClass], arguments: argparse.Namespace) -> list[str]:
    """What was asked, and how many classes there are."""
    total = sum(len(batch_class.sizes_m) for batch_class in classes)
    known = sum(batch_class.choices[0].known for batch_class in classes)
    return [
        f"{arguments.library} on {arguments.device}: a row of C[m x {arguments.n:,}] = A[m x {arguments.k:,}] B, "
        f"{arguments.format}, for {total:,} values of m",
        "1 class: a row has the same bits for every m" if len(classes) == 1 else plural(known, "class", "classes"),
    ]


def _class_lines(classes: list[BatchClass], size_k: int) -> list[str]:
    """The classes as a person reads them."""
    known_classes = [batch_class for batch_class in classes if batch_class.choices[0].known]
    unknown = [batch_class for batch_class in classes if not batch_class.choices[0].known]
    lines = []
    for number, batch_class in enumerate(known_classes, 1):
        lines.append(f"  {number}. {_sizes(batch_class.sizes_m)}")
        rows = (
            ""
            if batch_class.has_equal_rows
            else "; of some m the last rows differ from the first (CTAs share tiles' K)"
        )
        lines.append(f"     {_kernels(batch_class.choices, size_k)}{rows}; {_right(batch_class.confidences)}")
    if unknown:
        families = ", ".join(dict.fromkeys(batch_class.choices[0].family for batch_class in unknown))
        sure = tuple(sure for batch_class in unknown for sure in batch_class.confidences)
        lines.append(f"  each m by itself: {_sizes(tuple(m for batch_class in unknown for m in batch_class.sizes_m))}")
        lines.append(f"     {families}, whose order of summation is not known for these m; {_right(sure)}")
    return lines


def _kernels(choices: tuple[LibraryChoice, ...], size_k: int) -> str:
    """Families with their slices, which add in the same order. size_k: K of the products."""
    texts = [
        kernel_text(choice.family, choice.slices, working_slices(choice.schedule, size_k, is_known=choice.known))
        for choice in choices[:KERNELS]
    ]
    texts += [f"{len(choices) - KERNELS} more of the same order"] if len(choices) > KERNELS else []
    return ", or ".join(texts)


def _sizes(sizes: tuple[int, ...]) -> str:
    all_runs = runs(sizes)
    shown = ", ".join(run_text(*run) for run in all_runs[:RANGES])
    left = len(all_runs) - RANGES
    more = f", and {plural(left, 'more range')} (--json and --report list all)" if left > 0 else ""
    return f"{len(sizes):,} of m: {shown}{more}"


def _right(confidences: tuple[float, ...]) -> str:
    return f"right with a probability of {fmean(confidences):.2f} on average, {min(confidences):.2f} at least"


def _or(advice: list[str]) -> list[str]:
    """Choices, a line each."""
    lines = [f"{'or ' if i else ''}{choice}" for i, choice in enumerate(advice)]
    return [*(f"{line};" for line in lines[:-1]), *lines[-1:]]


def _without_slices(classes: list[BatchClass], sizes: list[int], call: Mapping[str, Any]) -> list[str]:
    """The advice to forbid slices of K, where the library takes some and has fewer classes without them."""
    switch = PYTORCH_SWITCHES.get(call["format"])
    has_slices = any(choice.slices > 1 for batch_class in classes for choice in batch_class.choices)
    if len(classes) < 2 or switch is None or not has_slices or call.get("reductions") is not None:
        return []
    try:
        left = batch_classes(m=sizes, **{**call, "reductions": "none"})
    except HwsimError:
        return []
    if len(left) >= len(classes):
        return []
    sure = min(min(batch_class.confidences) for batch_class in left)
    return [
        f"forbid slices of K, which leaves {plural(len(left), 'class', 'classes')} (right with a "
        f"probability of {sure:.2f} at least): --reductions none; in PyTorch "
        f"torch.backends.cuda.matmul.{switch} = (False, False)"
    ]


def _advice(classes: list[BatchClass], *, is_pinned: bool) -> list[str]:
    """What to do for equal bits, where there are several classes: pad to one, or ask for one's kernel where that
    fixes the order for every m (and is there for more than one; kernels of matrix-vector products are not).
    is_pinned: the caller chooses cuBLASLt's algorithm; PyTorch's users do not.
    """
    known_classes = [batch_class for batch_class in classes if batch_class.choices[0].known]
    whole = [(number, batch_class) for number, batch_class in enumerate(known_classes, 1) if batch_class.has_equal_rows]
    if len(classes) < 2 or not whole:
        return []
    number, padded = whole[0]
    lines = [f"pad m to a value of class {number}, and drop the rows added: {_padding(padded.sizes_m)}"]
    pinned = next(
        (
            batch_class
            for _, batch_class in whole
            if not batch_class.choices[0].order_by_m and len(batch_class.sizes_m) > 1
        ),
        None,
    )
    pin = "" if pinned is None or not is_pinned else pinned.choices[0].pin_text(pinned.sizes_m[0])
    return [*lines, pin] if pin else lines
