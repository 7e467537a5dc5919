"""`hwsim invariance`: which batch sizes give a row of a library's product the same bits."""

from __future__ import annotations

import argparse
import json

from hwsim.errors import InputError
from hwsim.studies.invariance import BatchClass, batch_classes

RANGES = 6  # that a line shows
MOST_SIZES = 1_000_000


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
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output, nothing else there")


def execute(arguments: argparse.Namespace) -> int:
    """Print the classes, what differs between them, and what to do about it."""
    sizes = sizes_of(arguments.m)
    call = {
        name: getattr(arguments, name) for name in ("n", "k", "device", "library", "format", "output", "accumulate")
    }
    call |= {"a_layout": arguments.a_layout, "b_layout": arguments.b_layout}
    classes = batch_classes(m=sizes, **call)
    if arguments.json:
        found = [
            {
                "m": ranges(one.sizes_m),
                "count": len(one.sizes_m),
                "kernel": one.choices[0].kernel,
                "algorithm": one.choices[0].algorithm,
                "split_k": one.choices[0].split_k,
                "kernels": [{"kernel": x.kernel, "split_k": x.split_k} for x in one.choices],
                "known": one.choices[0].known,
                "equal_rows": one.has_equal_rows,
                "confidence": round(sum(one.confidences) / len(one.confidences), 4),
                "least_confidence": round(min(one.confidences), 4),
            }
            for one in classes
        ]
        print(json.dumps({"schema": "hwsim.invariance/1", **call, "classes": found}))
        return 0
    print(text_of(classes, arguments.n, arguments.k, arguments.format, arguments.device, arguments.library))
    return 0


def sizes_of(text: str) -> list[int]:
    """`1:8192` (both ends), `1:8192:8`, or `1,7,64`. Raises InputError for anything else."""
    try:
        if ":" in text:
            first, last, *rest = (int(part) for part in text.split(":"))
            step = rest[0] if rest else 1
            is_range = len(rest) < 2 and step >= 1 and 1 <= first <= last and (last - first) // step < MOST_SIZES
            found = list(range(first, last + 1, step)) if is_range else []
        else:
            found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise InputError(
            f"--m {text}: allowed: A:B or A:B:STEP with 1 <= A <= B and STEP of at least 1, at most {MOST_SIZES:,} "
            "numbers, or integers with commas"
        )
    return found


def ranges(sizes: tuple[int, ...]) -> list[list[int]]:
    """Runs of neighbouring sizes, [first, last] each."""
    found: list[list[int]] = []
    for size in sorted(sizes):
        if found and size == found[-1][1] + 1:
            found[-1][1] = size
        else:
            found.append([size, size])
    return found


def _padding(sizes: tuple[int, ...]) -> str:
    """To which m of a class others are padded: its largest, and up to where it goes on without a gap."""
    longest = max(ranges(sizes), key=lambda run: run[1] - run[0])
    return f"m up to {max(sizes):,} can be padded to {max(sizes):,}; {longest[0]:,} to {longest[1]:,} need no padding"


def text_of(classes: list[BatchClass], n: int, k: int, format: str, device: str, library: str) -> str:
    """The classes as a person reads them."""
    total = sum(len(one.sizes_m) for one in classes)
    lines = [f"{library} on {device}: a row of C[m x {n:,}] = A[m x {k:,}] B, {format}, for {total:,} values of m"]
    lines.append("1 class: a row has the same bits for every m" if len(classes) == 1 else f"{len(classes)} classes")
    for number, one in enumerate(classes, 1):
        choice = one.choices[0]
        runs = ranges(one.sizes_m)
        shown = ", ".join(str(a) if a == b else f"{a}..{b}" for a, b in runs[:RANGES])
        more = f", and {len(runs) - RANGES} ranges more" if len(runs) > RANGES else ""
        slices = "K in one piece" if choice.split_k == 1 else f"K in {choice.split_k} slices"
        sure = "" if choice.known else "; its order of summation is not known"
        lines.append(f"  {number}. {len(one.sizes_m):,} of m: {shown}{more}")
        rows = "" if one.has_equal_rows else "; of some m the last rows differ from the first (CTAs share tiles' K)"
        others = f", or {len(one.choices) - 1} others of the same order" if len(one.choices) > 1 else ""
        mean, least = sum(one.confidences) / len(one.confidences), min(one.confidences)
        right = f"right with a probability of {mean:.2f} on average, {least:.2f} at least"
        lines.append(f"     {choice.kernel}, {slices}{others}{sure}{rows}; {right}")
    pinned = next((i for i, one in enumerate(classes) if one.choices[0].known and one.has_equal_rows), None)
    if len(classes) > 1 and pinned is not None:
        found = classes[pinned]
        lines.append("What to do for equal bits:")
        lines.append(f"  pad m to a value of class {pinned + 1}, and drop the rows added: {_padding(found.sizes_m)};")
        lines.append(
            f"  or give cublasLtMatmul for every m the algorithm that cublasLtMatmulAlgoGetHeuristic has for m = "
            f"{found.sizes_m[0]:,}"
        )
    return "\n".join(lines)
