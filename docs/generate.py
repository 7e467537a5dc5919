"""Writes the generated parts of these pages: what stands between `<!-- generated: NAME -->` and `<!-- end -->`.

`python docs/generate.py` rewrites them in place; a test fails when a page is behind the devices and the code.
lab/docs/generate.py does the same for the laboratory's pages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import hwsim
from hwsim.datafiles.provenance import LEVELS
from hwsim.dataflows.registry import dataflows
from hwsim.devices import numerics_evidence
from hwsim.errors import UnsupportedError
from hwsim.gemm.plan import Plan
from hwsim.machines import timing
from hwsim.request.operands import problem_of_scheme
from hwsim.resolve.planning import carries, plan_for
from hwsim.resolve.scaled_record import block_scaled_instruction
from hwsim.schemes import OWN

FOLDER = Path(__file__).parent
BLOCK = re.compile(r"(<!-- generated: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
PACKAGE = FOLDER.parent / "configs" / "devices"
VENDORS = ("AMD", "Huawei", "NVIDIA")
#: Formats of units that tell the devices of a scheme apart.
NEEDED = ("bf16", "tf32")


def table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]], right: tuple[int, ...] = ()) -> str:
    """A Markdown table."""
    rule = ["---:" if i in right else "---" for i in range(len(head))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, tuple(rule), *rows)) + "\n"


def devices() -> str:
    """Every device of the package by its vendor, what its fp16 bits rest on, and what is computed for it."""
    listed: dict[tuple[str, int, str], list[str]] = {}
    for name in sorted(file.stem for file in PACKAGE.glob("*.yaml")):
        device = hwsim.device(PACKAGE / f"{name}.yaml")
        whole = device.family in dataflows() and timing.missing(device) is None
        vendor = next((word for word in VENDORS if device.title.startswith(word)), "hypothetical")
        level = numerics_evidence(device, device.native["fp16"])
        key = vendor, LEVELS.index(str(level)), "bits and cycles" if whole else "bits"
        listed.setdefault(key, []).append(f"`{name}`")
    rows = (
        (vendor, ", ".join(names), computed, f"`{LEVELS[level]}`")
        for (vendor, level, computed), names in sorted(listed.items())
    )
    return table(("vendor", "devices", "hwsim gives", "its fp16 bits rest on"), rows)


def schemes() -> str:
    """Every scheme, its operands, and the devices whose units carry it."""
    names = sorted(file.stem for file in PACKAGE.glob("*.yaml"))

    def rows() -> Iterator[tuple[str, ...]]:
        for scheme in OWN:
            carried = []
            for name in names:
                problem = problem_of_scheme(scheme, 64, 64, 64)
                try:
                    plan = plan_for(hwsim.device(name), scheme, problem, None, {}).plan
                    reason = carries(hwsim.device(name), plan)
                    scale = problem.a.scale
                    if isinstance(plan, Plan) and scale is not None and scale.kind == "vector":
                        formats = plan.a_pieces[0].format, plan.b_pieces[0].format
                        block_scaled_instruction(hwsim.device(name), *formats, scale)
                except UnsupportedError:
                    continue
                if reason is None:
                    carried.append(name)
            missing = [name for name in names if name not in carried]
            needed = next((f for f in NEEDED if carried == [n for n in names if f in hwsim.device(n).native]), None)
            few, before = (missing, "all but ") if len(missing) < len(carried) else (carried, "")
            listed = before + ", ".join(f"`{name}`" for name in few) if missing else "all"
            shown = f"{needed} unit" if needed and len(few) > 1 else listed
            yield f"`{scheme.name}`", scheme.title, scheme.source, ", ".join(scheme.input_formats), shown

    return table(("scheme", "what", "source", "operands", "devices, or the unit that they need"), alike(rows()))


def alike(rows: Iterable[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Rows of (scheme, title, the rest), with neighbours joined whose titles differ in one word and in nothing else."""
    group: list[tuple[str, ...]] = []
    for row in rows:
        if group and (row[2:] != group[0][2:] or len(_different([*group, row])) != 1):
            yield _joined(group)
            group = []
        group.append(row)
    yield _joined(group)


def _different(group: list[tuple[str, ...]]) -> list[int]:
    """Places of the words in which titles of one length differ; none where their lengths do."""
    words = [row[1].split() for row in group]
    is_one_length = len({len(title) for title in words}) == 1
    return [i for i, same in enumerate(zip(*words, strict=True)) if len({*same}) > 1] if is_one_length else []


def _joined(group: list[tuple[str, ...]]) -> tuple[str, ...]:
    title = group[0][1].split()
    for place in _different(group):
        *others, last = [row[1].split()[place] for row in group]
        title[place] = f"{', '.join(others)} or {last}"
    return ", ".join(row[0] for row in group), " ".join(title), *group[0][2:]


#: Errors of every scheme on every device, from which the short table is taken.
LONG_TABLE = FOLDER.parent / "lab" / "docs" / "accuracy.md"
#: Devices of the short table of errors, and its inputs among those of the long table.
ACCURACY_DEVICES = ("a100", "h200", "b200", "mi300x", "ascend910a")
ACCURACY_INPUTS = "N(0, 1)"


def accuracy() -> str:
    """Errors of schemes on a few devices, from the whole table in lab/docs/accuracy.md."""
    text = LONG_TABLE.read_text(encoding="utf-8")
    lines = text[text.index("| scheme | devices |") :].partition("\n\n")[0].splitlines()
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    column = head.index(ACCURACY_INPUTS)
    errors: dict[str, dict[str, str]] = {}
    for row in rows:
        listed = row[1].split(", ")
        named = ACCURACY_DEVICES if listed == ["any"] else listed
        errors.setdefault(row[0], {}).update(dict.fromkeys(named, row[column]))
    named_alike: dict[tuple[str, ...], list[str]] = {}
    for name, of in errors.items():
        shown = tuple(of.get(x, "") for x in ACCURACY_DEVICES)
        if sum(map(bool, shown)) > 1:
            named_alike.setdefault(shown, []).append(name)
    return table(
        ("scheme", *(f"`{name}`" for name in ACCURACY_DEVICES)),
        ((", ".join(names), *shown) for shown, names in named_alike.items()),
        right=(1, 2, 3, 4, 5),
    )


BLOCKS: dict[str, Callable[[], str]] = {
    "schemes": schemes,
    "devices": devices,
    "accuracy": accuracy,
}


def current(page: str, blocks: Mapping[str, Callable[[], str]] = BLOCKS) -> str:
    """The text of a page with its generated blocks made anew."""
    return BLOCK.sub(lambda found: found[1] + blocks[found[2]]() + found[3], page)


def rewrite(path: Path, text: str) -> None:
    """Write a page whose text has changed."""
    if path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
        print(f"rewrote {path.name}")


def main() -> None:
    """Rewrite what is behind."""
    for path in sorted(FOLDER.glob("*.md")):
        rewrite(path, current(path.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
