"""`hwsim attention`: scaled dot-product attention by the kernel that a library runs on a device: bits and cycles."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.attending.array_attention import attention
from hwsim.attending.attention_result import AttentionResult
from hwsim.cli.matrices import read_array
from hwsim.cli.option_flags import positive, whole
from hwsim.cli.progress import progress_bar
from hwsim.cli.trace_options import check_trace, gantt_asked_for, most_waited, trace_asked_for
from hwsim.compute.attention_call import BACKEND_ENDING, BACKENDS, LIBRARIES, backend_named
from hwsim.compute.math_kernel import FORMATS as FORMATS_OF_PYTORCH
from hwsim.errors import InputError, UnsupportedError
from hwsim.formats import array_dtype, format_of
from hwsim.host.files import check_outputs, write_whole
from hwsim.libraries.gemm_call import PYTORCH
from hwsim.libraries.published.flash_attention import FORMAT_OF_8_BITS
from hwsim.machines.l2_state import DEFAULT, STATES
from hwsim.report.text.attention_text import attention_text
from hwsim.result import plain
from hwsim.trace.trace import FORMATS as TRACES

AnyArray = NDArray[Any]
OPERANDS = ("query", "key", "value")
FORMATS = (*FORMATS_OF_PYTORCH, FORMAT_OF_8_BITS)
CODE_BITS = {np.dtype(np.uint8): 8, np.dtype(np.uint16): 16}  # of files of codes
#: Sizes of random operands, and what they are where nothing is said (None: as the size named here).
SIZES: dict[str, tuple[int | str, str]] = {
    "batch": (1, "sequences (default 1)"),
    "heads": (16, "heads of the query (default 16)"),
    "key_heads": ("heads", "heads of key and value; they divide --heads (default: as many)"),
    "queries": (1024, "queries (default 1024)"),
    "keys": ("queries", "keys (default: as many as queries)"),
    "width": (64, "elements of a row of query and key (default 64)"),
    "value_width": ("width", "elements of a row of the value (default: as --width)"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    add = parser.add_argument
    add(
        "--device",
        default="h100",
        metavar="NAME",
        help="device name or YAML file, families sm80 and sm90; with math sm70 and sm100 too, with "
        "flash-attention-4 sm100 (default h100)",
    )
    add(
        "--backend",
        type=backend_named,
        choices=BACKENDS,
        help="backend of PyTorch, also as flash, efficient, cudnn or math (default: the first that takes the call on "
        "the device)",
    )
    add("--library", choices=LIBRARIES, default=PYTORCH, help=f"whose kernel computes it (default {PYTORCH})")
    for name, (_, text) in SIZES.items():
        add(f"--{name.replace('_', '-')}", type=whole(1), metavar="N", help=text)
    add("--causal", action="store_true", help="query i sees the keys 0 to i")
    add("--scale", type=float, metavar="X", help="factor of the scores (default 1 / sqrt(width))")
    add(
        "--format",
        choices=FORMATS,
        help="format of the operands (default fp16; fp32: --backend math; e4m3: --library flash-attention-3); .npy "
        "files of uint16 and uint8 are codes",
    )
    for name in OPERANDS:
        add(
            f"--{name}",
            type=Path,
            metavar=f"{name.upper()}.npy",
            help=f"{name} (..., heads, rows, width), all three or none (default: random N(0, 1))",
        )
    add("--mask", type=Path, metavar="MASK.npy", help="mask: bool, whose False hides, or of --format, which is added")
    add("--seed", type=whole(0), default=0, metavar="N", help="seed of random operands (default 0)")
    add("--functional", action="store_true", help="compute the bits by the kernel's program, slower")
    add("--no-exact", action="store_true", help="no bits: cycles alone, which need no memory for operands")
    add("--l2", choices=tuple(STATES), default=DEFAULT, help=f"state of L2 before the run (default {DEFAULT})")
    add("--clock-mhz", type=positive, metavar="MHZ", help="core clock (default: what the chip keeps under this load)")
    add("--launch-overhead", action="store_true", help="seconds take in the launches of kernels")
    add("--out", type=Path, metavar="OUT.npy", help="write the result; bf16 as uint16 codes")
    traces = ", ".join(f"{suffix} ({what})" for suffix, what in TRACES.items())
    add("--trace", type=Path, metavar="FILE", help=f"write a trace; the suffix says how: {traces}")
    add("--trace-core", type=whole(0), metavar="CORE", help="trace this core alone (default: one core of each kind)")
    add("--trace-from", type=whole(0), metavar="CYCLES", help="trace from this cycle on (default 0)")
    add("--trace-to", type=whole(1), metavar="CYCLES", help="trace up to this cycle (default: the end)")
    add("--gantt", action="store_true", help="also what the engines of one core do over time, as text")
    add("--json", action="store_true", help="one JSON object on standard output, nothing else there")
    add("-q", "--quiet", action="store_true", help="no progress and no notes on standard error")


def execute(arguments: argparse.Namespace) -> int:
    """Compute, write the files, print the report."""
    _check(arguments)
    operands, inputs = _operands(arguments)
    with progress_bar(quiet=arguments.quiet) as progress:
        if progress is not None:
            progress.at("times" if arguments.no_exact else "computing the bits")
        result = attention(
            *operands,
            device=arguments.device,
            library=arguments.library,
            backend=arguments.backend,
            is_causal=arguments.causal,
            mask=None if arguments.mask is None else _mask(arguments),
            scale=arguments.scale,
            exact=not arguments.no_exact,
            functional=arguments.functional,
            l2=arguments.l2,
            clock_mhz=arguments.clock_mhz,
            launch_overhead=arguments.launch_overhead,
        )
        if (arguments.trace is not None or arguments.gantt) and result.call.timed.no_program:
            flag = "--trace" if arguments.trace is not None else "--gantt"
            raise UnsupportedError(f"{flag}: there are no cycles: {result.timing_note}")
        if progress is not None:
            progress.at("times and the report")
        text = (
            json.dumps(plain(result.to_dict()), allow_nan=False)
            if arguments.json
            else attention_text(result, inputs, _chosen(arguments))
        )
    notes = _written(arguments, result)
    if arguments.gantt:
        text += f"\n\n{gantt_asked_for(arguments, result.traced)}"
    print(text)
    if not arguments.quiet:
        for note in notes:
            print(f"hwsim: {note}", file=sys.stderr)
    return 0


def _chosen(arguments: argparse.Namespace) -> str:
    """Who chose the kernel, where the command line names none."""
    if arguments.backend is not None or arguments.library != PYTORCH:
        return ""
    backends = ", ".join(name.removesuffix(BACKEND_ENDING).lower() for name in BACKENDS)
    others = ", ".join(name for name in LIBRARIES if name != PYTORCH)
    return f"PyTorch's own choice; others by --backend ({backends}) or --library ({others})"


def _check(arguments: argparse.Namespace) -> None:
    """Refuse options that do not go together, and files that could not be written, before the work."""
    files = [name for name in OPERANDS if getattr(arguments, name) is not None]
    if files and len(files) < len(OPERANDS):
        raise InputError(f"--{files[0]}: give --query, --key and --value, or none of them")
    sizes = [name for name in SIZES if getattr(arguments, name) is not None]
    if files and sizes:
        raise InputError(f"--{sizes[0].replace('_', '-')}: the files say the sizes; leave it out beside --query")
    if arguments.no_exact and arguments.out is not None:
        raise InputError("--out needs the bits: leave out --no-exact")
    check_trace(arguments)
    check_outputs({"--out": arguments.out, "--trace": arguments.trace})


def _operands(arguments: argparse.Namespace) -> tuple[list[AnyArray], str]:
    """Query, key and value, and in words where they are from."""
    dtype = array_dtype(format_of(arguments.format or FORMATS[0]))
    if arguments.query is not None:
        read = {name: read_array(name, getattr(arguments, name)) for name in OPERANDS}
        return [_in_format(name, x, arguments.format) for name, x in read.items()], f"query from {arguments.query}"
    sizes: dict[str, int] = {}
    for name, (default, _) in SIZES.items():
        sizes[name] = getattr(arguments, name) or (sizes[default] if isinstance(default, str) else default)
    batch, keys = sizes["batch"], (sizes["key_heads"], sizes["keys"])
    shapes = [
        (batch, sizes["heads"], sizes["queries"], sizes["width"]),
        (batch, *keys, sizes["width"]),
        (batch, *keys, sizes["value_width"]),
    ]
    if arguments.no_exact:
        zero = np.zeros((), dtype)
        return [np.broadcast_to(zero, shape) for shape in shapes], "no operands"
    draw = np.random.default_rng(arguments.seed)
    arrays = [draw.standard_normal(shape, np.float32).astype(dtype) for shape in shapes]
    return arrays, f"random N(0, 1), seed {arguments.seed}"


def _in_format(name: str, array: AnyArray, format: str | None) -> AnyArray:
    """An operand of a file, in the format of --format where the file has codes. Raises InputError where it has not."""
    if array.dtype in CODE_BITS:
        narrow = [known for known in FORMATS if format_of(known).bits == CODE_BITS[array.dtype]]
        if format not in narrow:
            said = f"the file has codes ({array.dtype}); say their format: --format {' or '.join(narrow)}"
            raise InputError(f"--{name}: {said}")
        return array.view(array_dtype(format_of(format)))
    if format is not None and array.dtype != array_dtype(format_of(format)):
        raise InputError(
            f"--format {format}: the file of --{name} has {array.dtype}; convert it, or leave --format out"
        )
    return array


def _mask(arguments: argparse.Namespace) -> AnyArray:
    array = read_array("mask", arguments.mask, takes_bool=True)
    return array if array.dtype == bool else _in_format("mask", array, arguments.format)


def _written(arguments: argparse.Namespace, result: AttentionResult) -> list[str]:
    """Write the files that were asked for; returns a note for each."""
    notes = []
    if arguments.trace is not None:
        trace = trace_asked_for(arguments, result.traced)
        trace.write(arguments.trace)
        notes.append(f"wrote {arguments.trace}: trace of {len(trace):,} instructions{most_waited(trace)}")
    if arguments.out is not None:
        assert result.out is not None and result.codes is not None
        array = result.out if result.out.dtype in (np.float16, np.float32) else result.codes
        write_whole(arguments.out, lambda file: np.save(file, array, allow_pickle=False))
        notes.append(f"wrote {arguments.out}: result {result.out.shape}, {result.record.result_format}")
    return notes
