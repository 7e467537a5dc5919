"""`hwsim plot`: a figure of errors, rates, tiles or devices, as a file; without a kind it lists them."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from hwsim import plots
from hwsim.analysis.inputs import NORMAL
from hwsim.api import run
from hwsim.cli.option_flags import add_distribution, whole
from hwsim.cli.progress import progress_bar
from hwsim.devices import instruction, load
from hwsim.errors import HwsimError, InputError, nearest
from hwsim.report.plot_style import checked_plot_path, save, shaped
from hwsim.report.plots.bounds import FORMS, error_bound
from hwsim.report.plots.devices import peaks_by_device
from hwsim.report.plots.error_figures import EXPONENTS, exponent_rows
from hwsim.report.plots.lines import undefined
from hwsim.report.text.words import table
from hwsim.request.declarations import AUTO, OPERAND_DISTRIBUTION
from hwsim.result import Result, plain
from hwsim.schemes import Scheme, scheme_of
from hwsim.studies.questions import tune
from hwsim.studies.sweep import sweep
from hwsim.studies.sweep_pool import ERRORS as ERROR_COLUMNS

SIZES = (256, 512, 1024, 2048, 4096, 8192)
DEPTHS = (16, 64, 256, 1024, 4096)
SMALL = (32, 64, 128, 256, 512)
EDGE = 64  # rows and columns of the products whose error is drawn over K
MOST_SEEDS = 1000
MOST_INCHES = 100
DRAWN_IN_IT = "; --drawn-in-format draws the operands of every scheme in it"
PlotRows = list[dict[str, Any]]
Draw = Callable[[argparse.Namespace, Any], tuple[Any, PlotRows]]
WAYS = ("device", "scheme", "format")
LINES = ("y", "slopes", "bound", "bound_format")
ERRORS = (*WAYS, OPERAND_DISTRIBUTION, "at", "seeds", "drawn_in_format", *LINES)
DEFAULTS = {
    "device": ["h200"],
    "scheme": ["native"],
    OPERAND_DISTRIBUTION: [NORMAL],
    "at": None,
    "seeds": 1,
    "bound_format": "fp32",
}


@dataclass(frozen=True, slots=True)
class PlotKind:
    """A kind of plot: what it shows, how it is drawn from the verb's arguments, and the options that it takes.

    draw: gives the figure, and the rows of which it is. has_one_place: it takes one value of --at.
    """

    shows: str
    draw: Draw
    takes: tuple[str, ...]
    has_one_place: bool = False


def _rows(arguments: argparse.Namespace, progress: Any, shapes: list[list[int]], *, exact: bool) -> PlotRows:
    study: dict[str, Any] = {"devices": arguments.device, "shapes": shapes, "exact": exact}
    if exact and arguments.seeds > 1:
        study["seeds"] = list(range(arguments.seeds))
    rows: PlotRows = []
    ways = _ways(arguments)
    for index, (scheme, form, options) in enumerate(ways):
        shares = None if progress is None else _part_of(progress, index, len(ways))
        axes = options | ({OPERAND_DISTRIBUTION: arguments.operand_distribution} if exact else {})
        if exact and scheme != AUTO and arguments.y in (None, *ERROR_COLUMNS):
            axes["timing"] = [False]  # bits alone: no mapping changes them
        table_of_way = sweep(study | {"schemes": [scheme], "options": axes}, progress=shares).rows
        rows += [_named(row, form, is_drawn_in_it=bool(arguments.drawn_in_format)) for row in table_of_way]
    _say_refused(rows)
    return rows


def _named(row: Mapping[str, Any], form: str | None, *, is_drawn_in_it: bool) -> dict[str, Any]:
    """The row with the operands' format as `format`, whichever option said it."""
    if form is None:
        return dict(row)
    named = {name: value for name, value in row.items() if name != "input_format" or is_drawn_in_it}
    return named | {"format": form}


def _ways(arguments: argparse.Namespace) -> list[tuple[str, str | None, dict[str, Any]]]:
    """Each scheme with the operands' format and its options: one way for each format that it takes."""
    if arguments.drawn_in_format and not arguments.format:
        raise InputError("--drawn-in-format: of which format? give --format too")
    ways: list[tuple[str, str | None, dict[str, Any]]] = []
    for scheme, form in _formatted(arguments):
        options = _options(scheme, form)
        ways.append((scheme, form, options | ({"input_format": form} if arguments.drawn_in_format else {})))
    return ways


def _options(scheme: str, form: str | None) -> dict[str, Any]:
    """The options by which a scheme gets operands of a format: its own format, or the operands' where it has none."""
    if form is None:
        return {}
    if _has_format(scheme):
        return {"format": form}
    return {"input_format": form} if _is_told(scheme_of(scheme)) else {}


def _has_format(scheme: str) -> bool:
    return scheme != AUTO and any(option.name == "format" for option in scheme_of(scheme).options)


def _is_told(scheme: Scheme) -> bool:
    """Whether the operands' format decides what the scheme does; what it quantizes by itself is FP32."""
    return scheme.quantizes is None and len(scheme.input_formats) > 1


def _formatted(arguments: argparse.Namespace) -> list[tuple[str, str | None]]:
    """The schemes with the formats of --format; one that has no choice and takes one format is alone, and standard
    error says so. With --drawn-in-format each has operands of every format.

    Raises InputError where a scheme takes several formats and none of those asked for.
    """
    pairs: list[tuple[str, str | None]] = []
    for name in arguments.scheme:
        if not arguments.format or (name == AUTO and not arguments.drawn_in_format):
            pairs.append((name, None))
        elif _has_format(name) or arguments.drawn_in_format:
            pairs += product([name], arguments.format)
        else:
            scheme = scheme_of(name)
            taken = [form for form in arguments.format if form in scheme.input_formats]
            if not taken and _is_told(scheme):
                raise InputError(
                    f"--format {' '.join(arguments.format)}: scheme {name} takes operands of "
                    f"{', '.join(scheme.input_formats)}; give one of these too"
                )
            pairs += product([name], taken if _is_told(scheme) else [None])
            if not _is_told(scheme):
                hint = DRAWN_IN_IT if "drawn_in_format" in KINDS[arguments.kind].takes else ""
                formats = " ".join(arguments.format)
                print(
                    f"hwsim: --format {formats} is not of {name}: its operands are {scheme.input_formats[0]}{hint}",
                    file=sys.stderr,
                )
    return pairs


def _say_refused(rows: Any) -> None:
    """Name the combinations that were refused, once each, on standard error."""
    reasons = {(row["scheme"], row["device"], row.get("format")): row["refused"] for row in rows if row.get("refused")}
    for (scheme, device, form), reason in reasons.items():
        named = scheme if form is None else f"{scheme} ({form})"
        print(f"hwsim: left out: {named} on {device}: {reason}", file=sys.stderr)


def _over(rows: PlotRows, x: str, y: str, arguments: argparse.Namespace) -> Any:
    """The figure of a column over another; standard error names the points that are infinite or NaN."""
    figure = plots.over(rows, x, y, **_drawn(arguments))
    if told := undefined(rows, x, y):
        print(f"hwsim: {told}", file=sys.stderr)
    return figure


def _drawn(arguments: argparse.Namespace) -> dict[str, Any]:
    """How lines are drawn: arguments of hwsim.plots.over."""
    return {
        "bounds": arguments.bound or (),
        "bound_format": arguments.bound_format,
        "slopes": arguments.slopes or False,
    }


def _error_over_k(arguments: argparse.Namespace, progress: Any) -> tuple[Any, PlotRows]:
    rows = _rows(arguments, progress, [[EDGE, EDGE, k] for k in arguments.at or DEPTHS], exact=True)
    return _over(rows, "k", arguments.y or "relative_frobenius", arguments), rows


def _error_over_size(arguments: argparse.Namespace, progress: Any) -> tuple[Any, PlotRows]:
    rows = _rows(arguments, progress, [[size, size, size] for size in arguments.at or SMALL], exact=True)
    return _over(rows, "size", arguments.y or "relative_frobenius", arguments), rows


def _error_over_exponent(arguments: argparse.Namespace, progress: Any) -> tuple[Any, PlotRows]:
    rows = exponent_rows(
        arguments.device,
        [(scheme, form, _options(scheme, form)) for scheme, form in _formatted(arguments)],
        exponents=arguments.at or EXPONENTS,
        seeds=range(arguments.seeds),
        distributions=arguments.operand_distribution,
        progress=progress,
    )
    _say_refused(rows)
    return _over(rows, "exponent", "relative_frobenius", arguments), rows


def _tflops_over_size(arguments: argparse.Namespace, progress: Any) -> tuple[Any, PlotRows]:
    rows = _rows(arguments, progress, [[size, size, size] for size in arguments.at or SIZES], exact=False)
    return _over(rows, "size", arguments.y or "tflops", arguments), rows


def _tiles(arguments: argparse.Namespace, progress: Any) -> tuple[Any, PlotRows]:
    size = (arguments.at or [2048])[0]
    ways = list(product(arguments.device, _formatted(arguments)))
    landscapes = {}
    for index, (device, (scheme, form)) in enumerate(ways):
        shares = None if progress is None else _part_of(progress, index, len(ways))
        name = ", ".join(part for part in (device, scheme, form) if part is not None)
        try:
            landscapes[name] = tune(device, size, size, size, scheme=scheme, progress=shares, **_options(scheme, form))
        except HwsimError as error:
            if len(ways) == 1:
                raise
            print(f"hwsim: left out: {name}: {error}", file=sys.stderr)
    if not landscapes:
        raise InputError("plot tiles: none of the combinations runs; standard error has the reasons")
    rows = [{"panel": name} | point.row() for name, landscape in landscapes.items() for point in landscape.points]
    if len(landscapes) == 1:
        ((name, landscape),) = landscapes.items()
        return plots.tile_landscape(landscape, f"{name}, {size}^3"), rows
    return plots.tile_landscape(landscapes, f"tiles, {size}^3"), rows


def _part_of(progress: Any, index: int, count: int) -> Callable[[float], None]:
    return lambda share: progress((index + share) / count)


def _rooflines(arguments: argparse.Namespace, progress: Any) -> tuple[Any, PlotRows]:
    arguments.format = formats = arguments.format or [load(arguments.device[0]).default_format]
    size = {name: (arguments.at or [4096])[0] for name in "mnk"}
    results: dict[str, list[Any]] = {form: [] for form in formats}
    ways = list(product(arguments.device, _formatted(arguments)))
    for index, (device, (scheme, form)) in enumerate(ways):
        try:
            result = run(device=device, scheme=scheme, exact=False, **_options(scheme, form), **size)
        except HwsimError as error:
            if len(ways) == 1:
                raise
            print(f"hwsim: left out: {scheme}{f' ({form})' if form else ''} on {device}: {error}", file=sys.stderr)
            continue
        multiplied = str(form) if _has_format(scheme) else instruction(load(device), result.times.unit).a
        if multiplied in results:
            results[multiplied].append(result)
        else:
            print(f"hwsim: left out: {scheme} on {device}: it multiplies {multiplied}", file=sys.stderr)
        if progress is not None:
            progress((index + 1) / len(ways))
    figure = plots.rooflines(arguments.device, formats, results)
    return figure, [_roofline_row(form, result) for form, of_form in results.items() for result in of_form]


def _roofline_row(form: str, result: Result) -> dict[str, Any]:
    """The point of a run: rates in TFLOP/s, intensity in FLOP per byte of HBM."""
    run_of = {"device": result.device, "scheme": result.scheme, "format": form}
    point = result.roofline
    return run_of | {"m": result.m, "n": result.n, "k": result.k} | ({} if point is None else asdict(point))


def _devices(arguments: argparse.Namespace, progress: Any) -> tuple[Any, PlotRows]:
    peaks = peaks_by_device(arguments.device)
    rows = [
        {"device": device, "format": form, "peak_tflops": peak}
        for device, by_format in peaks.items()
        for form, peak in by_format.items()
        if not arguments.format or form in arguments.format
    ]
    return plots.device_bars(arguments.device, arguments.format), rows


def _sweep(arguments: argparse.Namespace, progress: Any) -> tuple[Any, PlotRows]:
    missing = [f"--{name}" for name in ("study", "x", "y") if getattr(arguments, name) is None]
    if missing:
        raise InputError(f"plot sweep: give {', '.join(missing)} too: plot sweep --study study.yaml --x k --y tflops")
    rows = list(sweep(arguments.study, progress=progress).rows)
    _say_refused(rows)
    return _over(rows, arguments.x, arguments.y, arguments), rows


KINDS = {
    "error-over-k": PlotKind("error of devices and schemes over K (--at: values of K)", _error_over_k, ERRORS),
    "error-over-size": PlotKind(
        "error of devices and schemes over n of n^3 (--at: values of n)", _error_over_size, ERRORS
    ),
    "error-over-exponent": PlotKind(
        "error of devices and schemes over the binary exponent of A's elements (--at: exponents)",
        _error_over_exponent,
        (*WAYS, OPERAND_DISTRIBUTION, "at", "seeds", "slopes", "bound", "bound_format"),
    ),
    "tflops-over-size": PlotKind(
        "rate of devices and schemes over n of n^3 (--at: values of n)",
        _tflops_over_size,
        (*WAYS, "at", "y", "slopes"),
    ),
    "tiles": PlotKind(
        "best cycles of every tile that hwsim tune timed (--at: n of n^3)", _tiles, (*WAYS, "at"), has_one_place=True
    ),
    "rooflines": PlotKind(
        "attainable rate over work per byte, with a run of each device and scheme (--at: n of n^3)",
        _rooflines,
        (*WAYS, "at"),
        has_one_place=True,
    ),
    "devices": PlotKind("peak of each format on each device", _devices, ("device", "format")),
    "sweep": PlotKind("a column over another of a sweep's rows (--study, --x, --y)", _sweep, ("study", "x", *LINES)),
}
#: What an error about an unknown option adds.
UNKNOWN_OPTION = (
    "plot takes no such option. Options of a scheme or a run stand in a study: "
    "plot sweep --study STUDY.yaml --x k --y tflops"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    kinds = "; ".join(f"{name}: {kind.shows}" for name, kind in KINDS.items())
    parser.add_argument("kind", nargs="?", metavar="KIND", help=f"{kinds}. Without it: the list")
    parser.add_argument("--device", action="append", metavar="NAME", help="a device; may be repeated (default h200)")
    parser.add_argument("--scheme", action="append", metavar="NAME", help="a scheme; may be repeated (default native)")
    parser.add_argument("--format", action="append", metavar="FORMAT", help="a format of the operands; may be repeated")
    parser.add_argument(
        "--at", nargs="+", type=int, action="extend", metavar="N", help="the places along the axis, as KIND says"
    )
    parser.add_argument(
        "--seeds", type=whole(1, MOST_SEEDS), metavar="N", help="random operands of N seeds: their mean and range"
    )
    add_distribution(parser)
    parser.add_argument(
        "--drawn-in-format",
        action="store_true",
        default=None,
        help="random operands are rounded to --format first: the error is the arithmetic's, without the rounding",
    )
    parser.add_argument(
        "--study", type=Path, metavar="STUDY.yaml", help="of KIND sweep: the study (hwsim sweep --help)"
    )
    parser.add_argument("--x", metavar="COLUMN", help="of KIND sweep: the column along, or size (cube root of m n k)")
    parser.add_argument("--y", metavar="COLUMN", help="the column up: relative_frobenius, max_relative, tflops, cycles")
    parser.add_argument(
        "--slopes",
        nargs="?",
        const=True,
        type=_between,
        metavar="FROM:TO",
        help="the slope of each line in the legend, over all places along the axis, or from one to another: 1024:16384",
    )
    parser.add_argument(
        "--bound",
        action="append",
        metavar="BOUND",
        help=f"a line to compare with: {FORMS}; may be repeated",
    )
    parser.add_argument("--bound-format", metavar="FORMAT", help="the format whose unit roundoff u is (default fp32)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the file to write: .png, .svg or .pdf")
    parser.add_argument("--size", type=_inches, metavar="W,H", help="width and height of the figure in inches: 3.4,2.6")
    parser.add_argument("--no-title", action="store_true", help="no title above the figure: for a paper's caption")
    parser.add_argument(
        "--json", action="store_true", help="the file and the rows of the figure as one JSON object on standard output"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress bar")


def _between(text: str) -> tuple[float, float]:
    """Two places from FROM:TO."""
    try:
        low, high = (float(part) for part in text.split(":"))
    except ValueError:
        low = high = 0.0
    if not 0 < low < high < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: FROM:TO, two places above 0, as 1024:16384")
    return low, high


def _inches(text: str) -> tuple[float, float]:
    """Width and height from W,H."""
    try:
        width, height = (float(part) for part in text.split(","))
    except ValueError:
        width = height = 0.0
    if not all(1 <= side <= MOST_INCHES for side in (width, height)):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: W,H, each from 1 to {MOST_INCHES} inches, as 3.4,2.6")
    return width, height


def execute(arguments: argparse.Namespace) -> int:
    """List the kinds, or draw one."""
    if arguments.kind is None:
        if arguments.json:
            kinds = [{"kind": name, "shows": kind.shows} for name, kind in KINDS.items()]
            print(json.dumps({"schema": "hwsim.plots/1", "kinds": kinds}))
        else:
            print("\n".join(table([(name, kind.shows) for name, kind in KINDS.items()], ("kind", "shows"), indent="")))
        return 0
    if arguments.kind not in KINDS:
        raise InputError(
            f"no plot {arguments.kind!r}; there are {', '.join(KINDS)}{nearest(arguments.kind, list(KINDS))}"
        )
    if arguments.out is None:
        raise InputError(f"plot {arguments.kind}: give --out FILE.svg (or .png, .pdf)")
    checked_plot_path(arguments.out)
    _check_taken(arguments)
    for bound in arguments.bound or ():
        error_bound(bound)  # before anything is computed
    for name, value in DEFAULTS.items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    with progress_bar(quiet=arguments.quiet, stage="computing points") as progress:
        figure, rows = KINDS[arguments.kind].draw(arguments, progress)
    path = save(shaped(figure, arguments.size, has_title=not arguments.no_title), arguments.out)
    if arguments.json:
        record = {"schema": "hwsim.plot/1", "kind": arguments.kind, "file": str(path), "rows": rows}
        if arguments.bound or arguments.slopes:
            record["lines"] = _drawn_lines(figure)
        print(json.dumps(plain(record), allow_nan=False))
    else:
        print(f"wrote {path}")
    return 0


def _drawn_lines(figure: Any) -> list[dict[str, Any]]:
    """The lines of a figure, bounds among them: the label, with the slope, and the points."""
    return [
        {"label": line.get_label(), "x": list(line.get_xdata()), "y": list(line.get_ydata())}
        for axes in figure.axes
        for line in axes.lines
    ]


def _check_taken(arguments: argparse.Namespace) -> None:
    """Refuse options that would change nothing in the kind's figure."""
    taken = KINDS[arguments.kind].takes
    every = dict.fromkeys(name for kind in KINDS.values() for name in kind.takes)
    wrong = [_flag(name) for name in every if name not in taken and getattr(arguments, name) is not None]
    if wrong:
        raise InputError(
            f"plot {arguments.kind} does not take {', '.join(wrong)}; it takes {', '.join(map(_flag, taken))}"
        )
    if KINDS[arguments.kind].has_one_place and arguments.at and len(arguments.at) > 1:
        raise InputError(f"plot {arguments.kind}: --at {' '.join(map(str, arguments.at))}; allowed: one size")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
