"""Separates sources from values: a file's tree becomes plain values and a table of where each comes from.

A number or fact is either plain, and covered by the nearest enclosing block with `source:` and `evidence:`, or a
mapping {value, source, evidence, fitted_to, span, note}. The module knows that form and how a variant is merged into
its base; it does not know the device model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from hwsim.datafiles.yaml_text import FileProblem, Mark, Node, plain
from hwsim.errors import nearest

Path = tuple[str, ...]

FACTS = "dot_units"  # text in this block is a fact too: a unit's model, rounding and specials fix bits
UNSOURCED = ("schema_version", "sources")
SAID = ("source", "evidence", "fitted_to")
LEAF_KEYS = ("value", *SAID, "span", "note")


class Level(StrEnum):
    """Evidence levels of numbers, best first.

    silicon: this project recorded results of the chip and compared the bits. silicon-by-others: it compared the bits
    with results of the chip that others recorded and published. microbenchmark: measured on the chip. datasheet: the
    vendor says so. paper: a publication says so, a simulator's that claims to agree with the chip included. model:
    follows from another model. fitted: set so that a simulation meets a measurement, which `fitted_to` names.
    assumption: taken from a sibling, or reasoned.
    """

    SILICON = "silicon"
    SILICON_BY_OTHERS = "silicon-by-others"
    MICROBENCHMARK = "microbenchmark"
    DATASHEET = "datasheet"
    PAPER = "paper"
    MODEL = "model"
    FITTED = "fitted"
    ASSUMPTION = "assumption"
    UNKNOWN = "unknown"


LEVELS = tuple(level.value for level in Level)


NO_SOURCE = "NONE"  # the key of a sources table for what no source says


@dataclass(frozen=True, slots=True)
class Attribution:
    """Source and evidence of a value or, for a block, of all values below it (None: not given).

    is_leaf: given at this value itself, in the form {value, ...}; then text is a fact with an evidence level, too.
    """

    source: str | None = None
    evidence: str | None = None
    fitted_to: str | None = None
    span: tuple[float, float] | None = None
    note: str = ""
    is_leaf: bool = False


@dataclass(slots=True)
class AttributedTree:
    """A tree of plain values; `attributions` holds the own or inherited attribution of every path."""

    tree: Node
    attributions: dict[Path, Attribution]


def split(
    tree: Node, known_sources: dict[str, str], around: Attribution | None = None
) -> tuple[AttributedTree, list[FileProblem]]:
    """Separate the sources of `tree` from its values. known_sources: short keys that a `source:` may begin with (none:
    free text). around: attribution of what has none in the file.

    Problems: a number or fact with no source or evidence, an unknown key or level, a wrong span.
    """
    splitter = _Splitter(known_sources)
    walked = splitter.walk(tree, (), around or Attribution(), tree.mark)
    splitter.note_unsaid()
    return AttributedTree(walked, splitter.attributions), splitter.problems


def of_changes(base: AttributedTree) -> Attribution:
    """The attribution of what a variant changes in `base`: by the source of the whole base file, at best an assumption.
    Empty where that file says none for the whole.
    """
    whole = base.attributions.get((), Attribution())
    if whole.source is None or whole.evidence is None:
        return Attribution()
    source = f"changed from: {whole.source.removeprefix('changed from: ')}"
    return Attribution(source, max(whole.evidence, Level.ASSUMPTION.value, key=LEVELS.index))


def merge(base: AttributedTree, change: AttributedTree) -> AttributedTree:
    """The tree `base` with the keys of `change` replaced; null in `change` removes a key."""
    about = {**base.attributions, **change.attributions}
    return AttributedTree(_merge(base.tree, change.tree), about)


def attribution_of(node: Node, key: str, known_sources: dict[str, str]) -> tuple[Attribution, list[FileProblem]]:
    """The attribution in a mapping {source, evidence}, and its problems."""
    splitter = _Splitter(known_sources)
    if not isinstance(node.value, dict) or set(node.value) != {"source", "evidence"}:
        return Attribution(), [
            FileProblem(node.mark, key, "needs {source, evidence}: how good the base's numbers are here")
        ]
    attribution = splitter.said(node, (key,), Attribution())
    if attribution.evidence == Level.FITTED:
        text = "got 'fitted'; that is said of single numbers, with fitted_to: what each was fitted to"
        return Attribution(), [*splitter.problems, FileProblem(node.value["evidence"].mark, f"{key}.evidence", text)]
    return attribution, splitter.problems


def weakened(base: AttributedTree, here: Attribution) -> AttributedTree:
    """The tree `base` with every evidence level limited to that of `here`, and with the source of `here` appended."""

    def weaker(about: Attribution) -> Attribution:
        if about.source is None or about.evidence is None or here.evidence is None:
            return about
        evidence = max(about.evidence, here.evidence, key=LEVELS.index)
        joined = ", " if ";" in about.source else "; "
        return replace(about, source=f"{about.source}{joined}here by {here.source}", evidence=evidence)

    return AttributedTree(base.tree, {path: weaker(about) for path, about in base.attributions.items()})


def _merge(base: Node, change: Node) -> Node:
    if not isinstance(base.value, dict) or not isinstance(change.value, dict):
        return change
    children, keys = dict(base.value), dict(base.keys)
    for key, child in change.value.items():
        if child.value is None:
            children.pop(key, None)
            keys.pop(key, None)
        else:
            children[key] = _merge(children[key], child) if key in children else child
            keys[key] = change.keys[key]
    return Node(change.mark, children, keys)


class _Splitter:
    def __init__(self, known_sources: dict[str, str]) -> None:
        self.known = known_sources
        self.attributions: dict[Path, Attribution] = {}
        self.problems: list[FileProblem] = []
        self.unsaid: list[tuple[Mark, Path, str]] = []  # numbers without a source or evidence, and what each lacks

    def note_unsaid(self) -> None:
        """One problem for each thing that numbers lack, at the first of them, with what to write once for all."""
        source = f"{NO_SOURCE}; my own design" if NO_SOURCE in self.known else "my own design"
        for missing in dict.fromkeys(lacks for _, _, lacks in self.unsaid):
            places = [(mark, path) for mark, path, lacks in self.unsaid if lacks == missing]
            others = f", here and of {len(places) - 1} more" if len(places) > 1 else ""
            text = f"missing {missing}{others}: write {{value, source, evidence}}, or once at the top of the file, for "
            text += f'numbers of your own, source: "{source}" and evidence: {Level.ASSUMPTION}'
            self._problem(*places[0], text)

    def walk(self, node: Node, path: Path, around: Attribution, key: Mark) -> Node:
        if path[:1] == ("sources",):
            return node
        about = around
        if isinstance(node.value, dict):
            about = self.said(node, path, around)
            entries = node.value
            if path and "value" in entries:  # of a file itself it is a key like others
                self._leaf_keys(node, path)
                node = entries["value"]
            else:
                children = {k: c for k, c in entries.items() if k not in SAID}
                self.attributions[path] = about
                return Node(
                    node.mark,
                    {k: self.walk(c, (*path, k), about, node.keys[k]) for k, c in children.items()},
                    {k: node.keys[k] for k in children},
                )
        self.attributions[path] = about
        if is_fact(plain(node), path):
            missing = [name for name in ("source", "evidence") if getattr(about, name) is None]
            if missing:
                self.unsaid.append((key, path, " and ".join(missing)))
            elif about.evidence == Level.FITTED and about.fitted_to is None:
                self._problem(key, path, "missing fitted_to: which measurement was the number fitted to?")
        return node

    def said(self, node: Node, path: Path, around: Attribution) -> Attribution:
        """The attribution at the mapping `node`: its own keys, the others inherited from `around`."""
        assert isinstance(node.value, dict)
        source, evidence = node.value.get("source"), node.value.get("evidence")
        leaf = "value" in node.value
        level = self._level(evidence, (*path, "evidence")) if evidence else around.evidence
        inherited = None if evidence else around.fitted_to
        return Attribution(
            self._source(source, (*path, "source")) if source else around.source,
            level,
            self._fitted_to(node, path, level) or inherited,
            self._span(node, path) if leaf else None,
            self._note(node, path) if leaf else "",
            leaf,
        )

    def _source(self, node: Node, path: Path) -> str:
        text = node.value
        if not isinstance(text, str) or not text.strip():
            self._problem(node.mark, path, f"got {_shown(node)}; needs text that says where the number comes from")
            return ""
        if self.known:
            of_ones_own = f" ('{NO_SOURCE}; {text}' for what you say yourself)" if NO_SOURCE in self.known else ""
            for name in (part.strip() for part in text.split(";")[0].split(",")):
                if name not in self.known:
                    self._problem(
                        node.mark,
                        path,
                        f"'{name}' is not in the sources table; write KEY, KEY; free text{of_ones_own}; "
                        f"known: {', '.join(sorted(self.known))}{nearest(name, list(self.known))}",
                    )
        return text

    def _fitted_to(self, node: Node, path: Path, level: str | None) -> str | None:
        assert isinstance(node.value, dict)
        fitted_to = node.value.get("fitted_to")
        if fitted_to is None:
            return None
        if not isinstance(fitted_to.value, str) or not fitted_to.value.strip():
            self._problem(fitted_to.mark, (*path, "fitted_to"), f"got {_shown(fitted_to)}; needs text, the measurement")
        elif level is not None and LEVELS.index(level) < LEVELS.index(Level.FITTED):
            text = f"beside evidence '{level}'; a number that was fitted is 'fitted' at best"
            self._problem(fitted_to.mark, (*path, "fitted_to"), text)
        return str(fitted_to.value)

    def _level(self, node: Node, path: Path) -> str:
        text = node.value
        if text not in LEVELS:
            hint = nearest(text, LEVELS) if isinstance(text, str) else ""
            self._problem(node.mark, path, f"got {_shown(node)}; allowed: {', '.join(LEVELS)}{hint}")
            return "unknown"
        return str(text)

    def _span(self, node: Node, path: Path) -> tuple[float, float] | None:
        assert isinstance(node.value, dict)
        span, value = node.value.get("span"), node.value["value"].value
        if span is None:
            return None
        bounds = [child.value for child in span.value] if isinstance(span.value, list) else []
        numbers = [end for end in bounds if isinstance(end, int | float) and not isinstance(end, bool)]
        if len(bounds) != 2 or len(numbers) != 2 or numbers[0] > numbers[1]:
            self._problem(span.mark, (*path, "span"), "needs [lowest, highest], the values that sources give")
            return None
        if isinstance(value, int | float) and not numbers[0] <= value <= numbers[1]:
            self._problem(span.mark, (*path, "span"), f"[{numbers[0]}, {numbers[1]}] does not hold the value {value}")
        return float(numbers[0]), float(numbers[1])

    def _note(self, node: Node, path: Path) -> str:
        assert isinstance(node.value, dict)
        note = node.value.get("note")
        if note is None:
            return ""
        if not isinstance(note.value, str):
            self._problem(note.mark, (*path, "note"), f"got {_shown(note)}; needs text")
        return str(note.value)

    def _leaf_keys(self, node: Node, path: Path) -> None:
        assert isinstance(node.value, dict)
        for key in node.value:
            if key not in LEAF_KEYS:
                self._problem(
                    node.keys[key],
                    (*path, key),
                    f"unknown key '{key}' beside value; allowed: {', '.join(LEAF_KEYS)}{nearest(key, LEAF_KEYS)}",
                )

    def _problem(self, mark: Mark, path: Path, text: str) -> None:
        self.problems.append(FileProblem(mark, ".".join(path), text))


def is_fact(value: object, path: Path) -> bool:
    """Whether the plain value at `path` needs a source: every number, and every fact of a dot unit."""
    if value is None or path[0] in UNSOURCED:
        return False
    if path[0] == FACTS:
        return True
    if isinstance(value, list):
        return any(is_fact(item, path) for item in value)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(node: Node) -> str:
    if isinstance(node.value, dict):
        return "a mapping"
    return "a list" if isinstance(node.value, list) else repr(node.value)
