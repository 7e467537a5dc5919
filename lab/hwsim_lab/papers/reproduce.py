"""Claims of the papers, measured and judged: runs the experiments that are not cached, and gives a verdict per claim.

It knows experiments and claims by their form; not what they measure. Results are cached by hwsim's own sources, so that
a stopped run goes on where it was.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwsim.devices import registry
from hwsim.errors import InputError, nearest
from hwsim.host import cache
from hwsim.host.files import write_text
from hwsim_lab import places
from hwsim_lab.papers import ape, bf16x9, cells, claims, le_gemm, published_units, sgemm_cube, tf32_tf64
from hwsim_lab.papers.claims import Claim, Verdict
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series

Progress = Callable[[float], None]
#: Before the name of an experiment, in the place of an item.
EXPERIMENT = "experiment:"
#: Modules that vary, read or write what was measured: results do not depend on them.
AFTER = (
    "assumptions.py", "influences.py", "influences_text.py", "varied.py", "reproduce_text.py", "claims_page.py",
    "processes.py", "verdicts.py",
)  # fmt: skip
#: Paper -> the package with its EXPERIMENTS.
PACKAGES = {"sgemm-cube": sgemm_cube, "le-gemm": le_gemm, "bf16x9": bf16x9, "ape": ape, "tf32-tf64": tf32_tf64}


@dataclass(frozen=True, slots=True)
class InfluenceEnd:
    """An assumption at another value: what was measured then, the verdict, and the least and the greatest relative
    change of each quantity. refused: why hwsim does not take the value; verdict is None then.
    """

    value: Any
    measured: Mapping[str, Any]
    verdict: Verdict | None
    moves: Mapping[str, list[float]]
    refused: str = ""


@dataclass(frozen=True, slots=True)
class ClaimInfluence:
    """An assumption behind a claim: its value, how its other values come about (`said`), what is assumed (`why`)."""

    name: str
    value: Any
    said: str
    why: str
    others: tuple[InfluenceEnd, ...]


@dataclass(frozen=True, slots=True)
class OtherReading:
    """Another reading of a claim's words. said: what it means; verdict: what the claim's would be."""

    name: str
    said: str
    measured: Mapping[str, Any]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class ClaimOutcome:
    """A claim and what came of it. measured: {} where it was not. note: see Found; why it was not measured.

    influences: of assumptions on the claim, where they were asked for. unmoved: why none has any. readings: other
    readings of the paper's words than the verdict's.
    """

    paper: str
    claim: Claim
    measured: Mapping[str, Any]
    verdict: Verdict
    note: str = ""
    influences: tuple[ClaimInfluence, ...] = ()
    unmoved: str = ""
    readings: tuple[OtherReading, ...] = ()

    @property
    def turns(self) -> bool:
        """Whether the verdict is another at an end of an assumption that was varied."""
        return any(end.verdict not in (self.verdict, None) for one in self.influences for end in one.others)

    @property
    def id(self) -> str:
        """As "le-gemm/table2-tlp"."""
        return f"{self.paper}/{self.claim.id}"

    def to_dict(self) -> dict[str, Any]:
        """As claims.json has it."""
        return {
            "id": self.id, "paper": self.paper, "item": self.claim.item, "kind": self.claim.kind,
            "stated": self.claim.stated, "numbers": dict(self.claim.paper), "unit": self.claim.unit,
            "measured": dict(self.measured), "verdict": self.verdict, "note": self.note,
            "sizes": list(self.claim.sizes), "readings": [plain(asdict(one)) for one in self.readings],
            "assumptions": [plain(asdict(one)) for one in self.influences], "unmoved": self.unmoved,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reproduction:
    """Outcomes in the order of the papers, and series by paper."""

    outcomes: tuple[ClaimOutcome, ...]
    series: Mapping[str, tuple[Series, ...]]


def experiments(paper: str) -> tuple[Experiment, ...]:
    """The experiments of a paper. Raises InputError for a paper that there is not."""
    if paper not in PACKAGES:
        raise InputError(f"no paper {paper!r}; there are {', '.join(PACKAGES)}{nearest(paper, list(PACKAGES))}")
    found: tuple[Experiment, ...] = PACKAGES[paper].EXPERIMENTS
    return found


def item_key(text: str) -> str:
    """An item as users write it: "fig10a" for "Fig. 10 (a)", "section5.3" for "Section 5.3"."""
    short = re.sub(r"^(figure|fig)\.?", "fig", text.strip().lower())
    return re.sub(r"[^a-z0-9.]", "", short.replace("equation", "eq").replace("eq.", "eq").replace("fig.", "fig"))


def is_of_item(claim: Claim, item: str) -> bool:
    """Whether a claim is of an item, or its id begins with it: "fig1" is not "fig10"."""
    pairs = ((item_key(item), item_key(claim.item)), (item.strip().lower(), claim.id))
    return any(re.match(rf"{re.escape(wanted)}(?![0-9])", one) for wanted, one in pairs)


def has_item(paper: str, item: str) -> bool:
    """Whether a paper has claims of an item."""
    return any(is_of_item(claim, item) for claim in claims.read(paper).claims)


def wanted_claims(paper: str, item: str | None) -> tuple[Claim, ...]:
    """The claims of a paper, or of one of its items. Raises InputError for an item that has none."""
    every, named = claims.read(paper).claims, experiment_named(paper, item)
    if named is not None:
        return tuple(claim for claim in every if claim.id in named.claims)
    found = tuple(claim for claim in every if item is None or is_of_item(claim, item))
    if not found:
        items = list(dict.fromkeys(item_key(claim.item) for claim in every))
        assert item is not None
        raise InputError(f"{paper} has no item {item!r}; there are {', '.join(items)}{nearest(item_key(item), items)}")
    return found


def chosen(paper: str, item: str | None) -> tuple[Experiment, ...]:
    """The experiments that measure claims of an item; the one of that name, where there is one."""
    named = experiment_named(paper, item)
    if named is not None:
        return (named,)
    ids = {claim.id for claim in wanted_claims(paper, item)}
    return tuple(one for one in experiments(paper) if ids & set(one.claims))


def experiment_named(paper: str, item: str | None) -> Experiment | None:
    """The experiment of a paper that users name "experiment:NAME". Raises InputError for one that there is not."""
    if item is None or not item.startswith(EXPERIMENT):
        return None
    name, known = item.removeprefix(EXPERIMENT), [one.name for one in experiments(paper)]
    if name not in known:
        raise InputError(f"{paper} has no experiment {name!r}; there are {', '.join(known)}{nearest(name, known)}")
    return next(one for one in experiments(paper) if one.name == name)


def seconds_left(papers: Sequence[str], item: str | None, scale: Scale) -> float:
    """What is left to run takes about this long on two cores."""
    todo = [(paper, one) for paper in papers for one in chosen(paper, item)]
    return sum(one.seconds[scale] for paper, one in todo if not cached_path(paper, one, scale).exists())


def reproduce(
    papers: Sequence[str], item: str | None = None, *, scale: Scale = "quick", progress: Progress | None = None
) -> Reproduction:
    """Measure and judge the claims of papers (of one item). Experiments done before, with the same hwsim, are read."""
    todo = [(paper, one) for paper in papers for one in chosen(paper, item)]
    total, done = sum(one.seconds[scale] for _, one in todo) or 1.0, 0.0
    found: dict[str, list[Found]] = {paper: [] for paper in papers}
    for paper, one in todo:
        found[paper].append(measured(paper, one, scale))
        done += one.seconds[scale]
        if progress is not None:
            progress(done / total)
    outcomes = [outcome for paper in papers for outcome in _judged(paper, wanted_claims(paper, item), found[paper])]
    series = {paper: tuple(series for one in found[paper] for series in one.series) for paper in papers}
    return Reproduction(tuple(outcomes), series)


def measured(paper: str, one: Experiment, scale: Scale) -> Found:
    """What an experiment gives, from the cache where it is there. Raises InputError where a claim is left out."""
    path = cached_path(paper, one, scale)
    if path.exists():
        return _from_json(json.loads(path.read_text(encoding="utf-8")))
    with cells.stored_in(cells_folder(paper)):
        given = one.measure(scale)
    if set(given.measured) != set(one.claims):
        wrong = ", ".join(sorted(set(given.measured) ^ set(one.claims)))
        raise InputError(f"{paper}, experiment {one.name}: its claims and those measured differ: {wrong}")
    _check_readings(paper, given)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(plain(asdict(given)))
    write_text(path, text)
    return _from_json(json.loads(text))


def _check_readings(paper: str, given: Found) -> None:
    """Raise InputError where a claim's other readings are not those that were measured."""
    for id in given.measured:
        said, asked = list(given.readings.get(id, {})), list(claims.read(paper).claim(id).readings)[1:]
        if sorted(said) != sorted(asked):
            raise InputError(f"{paper}/{id}: other readings {asked or 'none'}; measured: {said or 'none'}")


def _judged(paper: str, wanted: Iterable[Claim], found: Sequence[Found]) -> list[ClaimOutcome]:
    outcomes = []
    for claim in wanted:
        own = next((one for one in found if claim.id in one.measured), None)
        if claim.holds is None:
            outcomes.append(ClaimOutcome(paper, claim, {}, "cannot be asked", claim.cannot or ""))
        elif own is None:
            outcomes.append(ClaimOutcome(paper, claim, {}, "not measured", "no experiment measures it yet"))
        else:
            values, others = own.measured[claim.id], own.readings.get(claim.id, {})
            readings = tuple(
                OtherReading(name, said, others[name], claim.verdict(others[name]))
                for name, said in list(claim.readings.items())[1:]
            )
            note = own.notes.get(claim.id, "")
            outcomes.append(ClaimOutcome(paper, claim, values, claim.verdict(values), note, readings=readings))
    return outcomes


def plain(value: Any) -> Any:
    """As JSON has it: NumPy's numbers and arrays as Python's, numbers that are not finite as text."""
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _from_json(stored: Any) -> Found:
    series = tuple(Series(**one) for one in stored["series"])
    readings = {claim: numbers(others) for claim, others in stored["readings"].items()}
    return Found(numbers(stored["measured"]), stored["notes"], series, readings)


def numbers(stored: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Quantities by claim and name, as `plain` wrote them."""

    def number(value: Any) -> Any:
        if isinstance(value, list):
            return [number(one) for one in value]
        return float(value) if value in ("inf", "-inf", "nan") else value

    return {claim: {name: number(one) for name, one in own.items()} for claim, own in stored.items()}


def cache_folder() -> Path:
    """Where results are cached: `reproduce` in the folder of `hwsim.host.cache`."""
    return cache.cache_folder("reproduce")


def cached_path(paper: str, one: Experiment, scale: Scale) -> Path:
    """The file of an experiment's results; it need not exist."""
    return _folder(paper) / f"{paper}-{one.name}-{scale}.json"


def cells_folder(paper: str) -> Path:
    """Where the cells of a paper's experiments are kept."""
    return _folder(paper) / "cells"


def _folder(paper: str) -> Path:
    return cache_folder() / f"{_digest()[:12]}-{_paper_digest(paper)[:12]}{_replaced()}"


def _digest() -> str:
    """Of hwsim's modules, kernels and data, but for those on papers: results of another hwsim are not taken."""
    return cache.sources_digest()


def _replaced() -> str:
    """What tells results apart where a user's device files are found before hwsim's; empty where none is. Files are
    read anew, as devices are: one may have been changed.
    """
    found = registry.replaced()
    said = {name: content if isinstance(content, str) else dict(content) for name, content in found.items()}
    text = json.dumps(said, default=repr)  # a plug-in's mapping may have any values
    return f"-{hashlib.sha256(text.encode()).hexdigest()[:12]}" if found else ""


@functools.cache
def _paper_digest(paper: str) -> str:
    """Of the modules that measure a paper's claims, of those that several papers share, and of the numbers that they
    read: the paper's own, and those of units that no device file has.
    """
    root = Path(__file__).parent
    own = Path(str(PACKAGES[paper].__file__)).parent
    apart = [Path(str(package.__file__)).parent for package in PACKAGES.values()]
    shared = [
        x for x in root.rglob("*.py") if x.name not in AFTER and not any(x.is_relative_to(y) for y in apart if y != own)
    ]
    units = places.PAPERS / published_units.FILE
    printed = json.dumps({claim.id: plain(claim.paper) for claim in claims.read(paper).claims})
    parts = cache.digest_of_files(shared, root), cache.digest_of_files([units], units.parent), printed
    return hashlib.sha256("".join(parts).encode()).hexdigest()
