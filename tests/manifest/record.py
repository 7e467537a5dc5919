"""Record and compare the manifest of runs: python tests/manifest/record.py --help."""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import cases as listed
import numpy as np
import yaml

import hwsim
import hwsim.api
from hwsim.datafiles.yaml_text import LOADER
from hwsim.resolve.mapping_choice import facts_of

HERE = Path(__file__).parent
MANIFEST, CHANGED, VALUES = HERE / "manifest.json", HERE / "changed.yaml", HERE / "changed.json"
#: Of a row, in order. case: the call and its operands; c: dtype, shape and codes of the result; rest: what a call gives
#: that is no Result (a trace, a program's facts). A field is null where there is nothing.
FIELDS = (
    "case",
    "error",
    "c",
    "cycles",
    "times",
    "phases",
    "engines",
    "traffic",
    "macs",
    "warnings",
    "options",
    "schedule",
    "evidence",
    "rest",
)
WIDTH = 10  # hexadecimal digits of a field's hash
Row = dict[str, Any]


def row_of(case: listed.Case, threads: int | None = None) -> Row:
    """Make the call of a case and take down what came of it."""
    arrays = listed.arrays_of(case)
    row: Row = dict.fromkeys(FIELDS)
    row["case"] = _hash([case, {name: _codes(x) for name, x in arrays.items()}])
    try:
        _CALLS[case["call"]](row, arrays, listed.keywords_of(case), {} if threads is None else {"threads": threads})
    except hwsim.HwsimError as error:
        return row | dict.fromkeys(FIELDS[2:]) | {"error": type(error).__name__}
    return row


def record(chosen: Iterable[listed.Case], threads: int | None = None, quiet: bool = False) -> dict[str, Row]:
    """Rows of cases by id."""
    found = list(chosen)
    return {case["id"]: row_of(case, threads) for case in _progress(found, quiet)}


def read(path: Path) -> dict[str, Row]:
    """The rows of a recording."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    return {name: dict(zip(kept["fields"], values, strict=True)) for name, values in kept["runs"].items()}


def write(path: Path, rows: Mapping[str, Row], version: str = hwsim.__version__) -> None:
    """A recording, one run a line."""
    lines = [f"{json.dumps(name)}: {json.dumps([row[x] for x in FIELDS])}" for name, row in rows.items()]
    head = f'{{\n"hwsim": {json.dumps(version)},\n"fields": {json.dumps(FIELDS)},\n"runs": {{\n'
    path.write_text(head + ",\n".join(lines) + "\n}\n}\n", encoding="utf-8")


def accepted() -> tuple[list[dict[str, Any]], dict[str, Row]]:
    """Changes of changed.yaml, and the values that they stand for: {id: {field: value}}."""
    entries = yaml.load(CHANGED.read_text(encoding="utf-8"), LOADER) or []
    values = json.loads(VALUES.read_text(encoding="utf-8")) if VALUES.exists() else {}
    return entries, values


def covered(part: Mapping[str, Any], values: Mapping[str, Row]) -> set[tuple[str, str]]:
    """The accepted values that a part of a change is about: (id of a run, field). part: {"ids": pattern, "fields"}."""
    is_of = re.compile(fnmatch.translate(part["ids"])).match
    names = [name for name in values if is_of(name)]
    return {(name, field) for name in names for field in part["fields"] if field in values[name]}


def parts_of(changes: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The parts of all changes."""
    return [part for change in changes for part in change["runs"]]


def expected() -> dict[str, Row]:
    """The first recording, with the accepted values in the place of its own."""
    changes, values = accepted()
    rows = read(MANIFEST)
    for name, field in set[tuple[str, str]]().union(*(covered(part, values) for part in parts_of(changes))):
        rows.setdefault(name, {})[field] = values[name][field]
    return rows


def differences(rows: Mapping[str, Row], before: Mapping[str, Row]) -> dict[str, list[str]]:
    """Fields in which runs differ from `before`, by id."""
    found = {}
    for name, row in rows.items():
        fields = [x for x in FIELDS if row[x] != before[name][x]] if name in before else ["missing"]
        if fields:
            found[name] = fields
    return found


def accept(
    rows: Mapping[str, Row], pattern: str, fields: list[str], reason: str, source: str, numerics: str = ""
) -> int:
    """Take down the values of `fields` that differ from the first recording, with the change that moved them; how many
    there are. Changes that moved them before keep their reasons.

    Values that no longer differ are taken out, and so are the parts of changes, and the changes, that none stands for.
    """
    changes, values = accepted()
    before, count = read(MANIFEST), 0
    for name, row in rows.items():
        own = values.pop(name, {})
        for field in fields:
            own.pop(field, None)
            if name in before and row[field] != before[name][field]:
                own[field], count = row[field], count + 1
        if own:
            values[name] = own
    if count:
        about = {"reason": reason, "source": source}
        same = next((x for x in changes if about.items() <= x.items()), None)
        told, part = {"numerics": numerics} if numerics else {}, {"ids": pattern, "fields": fields}
        if same is None:
            changes.append(about | told | {"runs": [part]})
        else:
            same["runs"] = [*(x for x in same["runs"] if x != part), part]
            same |= told
    changes = [kept for kept in (_standing(change, values) for change in changes) if kept["runs"]]
    text = yaml.safe_dump(changes, sort_keys=False, width=110, default_flow_style=None)
    CHANGED.write_text(_comment() + text, encoding="utf-8")
    lines = [f"{json.dumps(name)}: {json.dumps(values[name])}" for name in sorted(values)]
    if lines:
        VALUES.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    else:
        VALUES.unlink(missing_ok=True)
    return count


def _standing(change: Mapping[str, Any], values: Mapping[str, Row]) -> dict[str, Any]:
    """The change, with the parts and fields that accepted values stand for."""
    parts = []
    for part in change["runs"]:
        fields = {field for _, field in covered(part, values)}
        if fields:
            parts.append({"ids": part["ids"], "fields": [field for field in part["fields"] if field in fields]})
    return {**change, "runs": parts}


def _comment() -> str:
    """The lines of comment that changed.yaml begins with."""
    lines = CHANGED.read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if line.startswith("#"))


def main(arguments: list[str] | None = None) -> int:
    """The command. 0: nothing differs; 1: something does; 2: it cannot be done."""
    parser = argparse.ArgumentParser(description="Make the manifest's runs, and record or compare what came of them.")
    parser.add_argument("--out", type=Path, help="write a whole recording to this file")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="only runs whose id matches ('scheme/h200/*')")
    parser.add_argument(
        "--compare",
        type=Path,
        metavar="FILE",
        help="print what differs from that recording (manifest.json: with the accepted values)",
    )
    parser.add_argument("--add", action="store_true", help="append runs that manifest.json lacks; changes no other")
    parser.add_argument("--accept", metavar="PATTERN", help="the runs of this pattern differ on purpose")
    parser.add_argument("--fields", help=f"with --accept: which of {', '.join(FIELDS[1:])}; by commas")
    parser.add_argument("--reason", help="with --accept: why")
    parser.add_argument("--source", help="with --accept: what says that the new values are right")
    parser.add_argument("--numerics", help="with --accept of c: how its entry in CHANGELOG.md, under Numerics, begins")
    parser.add_argument("--threads", type=int, help="host threads (no field depends on it)")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress bar")
    given = parser.parse_args(arguments)
    fields = (given.fields or "").split(",")
    if given.accept and not (given.reason and given.source and set(fields) <= set(FIELDS[1:])):
        parser.error(f"--accept needs --reason, --source and --fields, of {', '.join(FIELDS[1:])}")
    if given.accept and "c" in fields and not given.numerics:
        parser.error("--accept of bits (c) needs --numerics, and the entry in CHANGELOG.md that begins so")
    if given.out is not None and given.out.resolve() == MANIFEST.resolve() and MANIFEST.exists():
        parser.error(f"{MANIFEST.name} is the first recording and is not written over; --add, --accept")
    if given.compare is not None and not given.compare.exists():
        parser.error(f"--compare: no file {given.compare}")
    before = read(MANIFEST) if MANIFEST.exists() else {}
    chosen = [case for case in listed.cases() if fnmatch.fnmatchcase(case["id"], given.accept or given.only)]
    if given.add:
        chosen = [case for case in chosen if case["id"] not in before]
    if not chosen:
        parser.error("no such run" + (" that the manifest lacks" if given.add else ""))
    rows = record(chosen, given.threads, given.quiet)
    print(f"{len(rows)} runs, {sum(row['error'] is not None for row in rows.values())} of them refused")
    if given.add:
        write(MANIFEST, before | rows)
    if given.out is not None:
        write(given.out, rows)
    if given.accept:
        count = accept(rows, given.accept, fields, given.reason, given.source, given.numerics or "")
        print(f"{count} values accepted" if count else "nothing differs from the first recording")
        return 0 if count else 2
    if given.compare is None:
        return 0
    is_first = given.compare.resolve() == MANIFEST.resolve()
    found = differences(rows, expected() if is_first else read(given.compare))
    for name, which in found.items():
        print(f"{name}: {', '.join(which)}")
    print(f"{len(found)} of {len(rows)} runs differ from {given.compare}")
    return 1 if found else 0


# --- calls -------------------------------------------------------------------------------------------------------


def _run(row: Row, arrays: Row, keywords: Row, host: Row) -> None:
    _result(row, hwsim.run(**arrays, **(host | keywords)))


def _matmul(row: Row, arrays: Row, keywords: Row, host: Row) -> None:
    row["c"] = _codes(hwsim.matmul(**arrays, **host, **keywords))


def _conv2d(row: Row, arrays: Row, keywords: Row, host: Row) -> None:
    row["c"] = _codes(hwsim.conv2d(**arrays, **host, **keywords))


def _emulate(row: Row, arrays: Row, keywords: Row, host: Row) -> None:
    with hwsim.emulate(measure=False, timing=True, **host, **keywords) as engine:
        row["c"] = _codes(np.matmul(arrays["a"], arrays["b"]))
    row["cycles"] = engine.cycles
    row["rest"] = _hash([engine.calls, engine.macs, engine.passed])


def _array(row: Row, arrays: Row, keywords: Row, host: Row) -> None:
    row["c"] = _codes(np.asarray(hwsim.Array(arrays["a"], measure=False, **host, **keywords) @ arrays["b"]))


def _mma(row: Row, arrays: Row, keywords: Row, _: Row) -> None:
    row["c"] = _codes(hwsim.device(keywords["device"]).mma(keywords["instruction"], **arrays))


def _dot(row: Row, arrays: Row, keywords: Row, _: Row) -> None:
    row["c"] = _codes(hwsim.device(keywords["device"]).dot(keywords["instruction"], **arrays))


def _program(row: Row, _: Row, keywords: Row, __: Row) -> None:
    device, program = hwsim.api.program(**keywords)
    assert program.gemm is not None
    row["rest"] = _hash([facts_of(program.gemm, device), True])  # programs compute their bits


#: Of a trace, not there when the manifest was first recorded.
LATER_COLUMNS = ("number", "signaller")


def _trace(row: Row, _: Row, keywords: Row, __: Row) -> None:
    result = hwsim.run(**keywords)
    trace = result.trace
    assert trace is not None and trace.rows.dtype.names is not None
    named = {
        x: [trace.names[x][i] if i >= 0 else None for i in trace.rows[x].tolist()]
        if x in trace.names
        else trace.rows[x].tolist()
        for x in trace.rows.dtype.names
        if x not in LATER_COLUMNS
    }
    _result(row, result)
    row["rest"] = _hash(named)


def _what_if(row: Row, _: Row, keywords: Row, __: Row) -> None:
    result = hwsim.run(**keywords)
    assert result.what_if
    _result(row, result)
    row["rest"] = _hash([[x.part, x.cycles, x.saved] for x in result.what_if])


def _roofline(row: Row, _: Row, keywords: Row, __: Row) -> None:
    result = hwsim.run(**keywords)
    assert result.roofline is not None
    _result(row, result)
    row["rest"] = _hash(dataclasses.asdict(result.roofline))


_CALLS: dict[str, Callable[[Row, Row, Row, Row], None]] = {
    "run": _run,
    "matmul": _matmul,
    "conv2d": _conv2d,
    "emulate": _emulate,
    "array": _array,
    "mma": _mma,
    "dot": _dot,
    "program": _program,
    "trace": _trace,
    "what_if": _what_if,
    "roofline": _roofline,
}


#: Words of a result's options that were others when the first manifest was recorded: name, and value by value.
TODAY: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "deal": ("distribution", {"tiles": "cyclic", "blocks": "block"}),
}


def _in_today_words(options: Row) -> Row:
    """Options with the names and values that they have today."""
    found = {}
    for name, value in options.items():
        today, values = TODAY.get(name, (name, {}))
        if isinstance(value, dict):
            value = _in_today_words(value)
        found[today] = values.get(value, value) if isinstance(value, str) else value
    return found


def _plain_schedule(schedule: Row) -> Row:
    """A schedule without a beta of 0 or 1, and without an order of scales of "joined": which came later than the
    first manifest.
    """
    epilogue = schedule["epilogue"]
    beta = None if epilogue["beta"] in (0.0, 1.0) else epilogue["beta"]
    plain = schedule | {"epilogue": epilogue | {"beta": beta}}
    return {name: value for name, value in plain.items() if (name, value) != ("scale_order", "joined")}


def _result(row: Row, result: hwsim.Result) -> None:
    # Predicted errors are left out: their last bits are another library's.
    options = {name: value for name, value in result.options.items() if name not in ("choice", "input_format")}
    row["c"] = None if result.codes is None else _codes(result.codes, str(result.c.dtype))
    row["cycles"] = result.cycles
    row["times"] = _hash([result.seconds, result.tflops, result.peak_fraction]) if result.cycles is not None else None
    row["phases"] = _hash(result.phases) if result.phases else None
    row["engines"] = _hash(result.engines) if result.engines else None
    row["traffic"] = _hash(result.traffic_bytes) if result.traffic_bytes else None
    row["macs"] = _hash(result.macs) if result.macs else None
    row["warnings"] = _hash(result.warnings) if result.warnings else None
    row["options"] = _hash([result.device, result.scheme, _in_today_words(options)])
    row["schedule"] = _hash(_plain_schedule(result.schedule)) if result.schedule else None
    row["evidence"] = _hash(result.evidence)


def _codes(x: np.ndarray[Any, Any], dtype: str = "") -> str:
    """Type, shape and a hash of an array's bits."""
    bits = np.ascontiguousarray(x)
    bits = bits.view(f"u{bits.dtype.itemsize}")
    digest = hashlib.sha256(bits.astype(bits.dtype.newbyteorder("<"), copy=False).tobytes()).hexdigest()
    return f"{dtype or x.dtype} {'x'.join(map(str, x.shape))} {digest[:16]}"


def _hash(value: Any) -> str:
    """Of plain data: numbers by their shortest exact text, keys in alphabetical order."""
    text = json.dumps(value, sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()[:WIDTH]


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} in a result")


def _progress(found: list[listed.Case], quiet: bool) -> Iterable[listed.Case]:
    if quiet:
        return found
    try:
        from tqdm import tqdm
    except ImportError:
        return found
    bar: Iterable[listed.Case] = tqdm(found, unit="run")
    return bar


if __name__ == "__main__":
    sys.exit(main())
