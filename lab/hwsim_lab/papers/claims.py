"""What the papers claim, read from lab/hwsim_lab/configs/papers/*.yaml, and the verdict that measured quantities give
on a claim.

A claim is written from the paper: where it stands, what it says, the paper's numbers, what has to be measured, and the
conditions under which it holds, or holds in order only. It knows nothing of how a quantity is measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import Field, ValidationError, model_validator

from hwsim.datafiles.yaml_text import common_yaml
from hwsim.errors import InputError, nearest
from hwsim_lab import places
from hwsim_lab.papers import conditions
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.record import PaperRecord

Verdict = Literal["holds", "order", "fails", "not measured", "cannot be asked"]
Kind = Literal["time", "accuracy", "bits", "data sheet", "definition", "design", "energy"]
#: From best to worst: a claim asked at several sizes has the worst of its verdicts.
RANKED: tuple[Verdict, ...] = ("holds", "order", "fails")
#: A claim holds in order only as long as each number of the paper is met within this factor: an order of magnitude
#: for errors, 2 for everything else. Bits are counted: there `order` states the bound itself.
ORDER_FACTOR: dict[Kind, float] = {"accuracy": 10.0, "bits": math.inf}
OTHER_ORDER_FACTOR = 2.0
LEAST_SIZES = 6  # that a claim is asked at, where the paper gives none


class Claim(PaperRecord):
    """One claim. item: table, figure, equation or section; stated: in our words; paper: its numbers by name, in `unit`.

    measured: what has to be measured, by the names that `holds` and `order` use. holds: the condition under which the
    paper's statement, with its numbers, is true of the simulator; order: the direction or ranking alone, where in
    addition each number of the paper in `holds` is met within ORDER_FACTOR. limits: why the conditions are as they are.
    cannot: why no simulator can be asked; such a claim has no conditions.

    sizes: sizes, one by one, where the paper gives none. Each quantity then has an element (a number or a series) for
    each size, and the verdict is the worst over the sizes. readings: where the paper's words may be read in several
    ways, name -> meaning; the first is the claim's verdict, the others stand beside it with theirs. fitted: the number
    of a device file, if any, that was chosen with this claim's own number in view: the claim then shows that a fit was
    possible.
    """

    id: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    item: str
    where: str
    stated: str
    kind: Kind
    setting: str
    paper: dict[str, Quantity] = Field(default_factory=dict)
    unit: str = ""
    measured: dict[str, str] = Field(default_factory=dict)
    holds: str | None = None
    order: str | None = None
    limits: str = ""
    cannot: str | None = None
    sizes: tuple[int, ...] = ()
    readings: dict[str, str] = Field(default_factory=dict)
    fitted: str = ""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.cannot is None) == (self.holds is None):
            raise ValueError(f"claim {self.id}: needs either `holds` or `cannot`")
        read: set[str] = set()
        for text in (self.holds, self.order):
            if text is None:
                continue
            own, stated = conditions.names(text)
            if unknown := own - set(self.measured):
                raise ValueError(f"claim {self.id}: {text!r} reads {', '.join(sorted(unknown))}, not in `measured`")
            if unknown := stated - set(self.paper):
                raise ValueError(f"claim {self.id}: {text!r} reads paper.{', paper.'.join(sorted(unknown))}, not there")
            read |= own
        if unread := set(self.measured) - read:
            raise ValueError(f"claim {self.id}: no condition reads {', '.join(sorted(unread))}")
        if self.holds is not None and not self.limits:
            raise ValueError(f"claim {self.id}: `limits` has to say why the conditions are as they are")
        if self.sizes and len(set(self.sizes)) < LEAST_SIZES:
            raise ValueError(f"claim {self.id}: {len(set(self.sizes))} sizes; needed: {LEAST_SIZES} at least")
        if len(self.readings) == 1:
            raise ValueError(f"claim {self.id}: one reading; needed: two or more, or none")
        return self

    def verdict(self, measured: Mapping[str, Quantity]) -> Verdict:
        """The verdict for measured quantities, the worst over `sizes`. Raises InputError where one is missing."""
        if self.holds is None:
            return "cannot be asked"
        if missing := set(self.measured) - set(measured):
            raise InputError(f"claim {self.id}: not measured: {', '.join(sorted(missing))}")
        return max(self.verdicts(measured), key=RANKED.index)

    def verdicts(self, measured: Mapping[str, Any]) -> tuple[Verdict, ...]:
        """The verdict at each of `sizes`; a single one where the claim has none. Raises InputError for a quantity that
        has not an element for each size.
        """
        if not self.sizes:
            return (self._verdict(measured),)
        for name in self.measured:
            if not isinstance(measured[name], Sequence) or len(measured[name]) != len(self.sizes):
                raise InputError(f"claim {self.id}: {name} needs an element for each of {len(self.sizes)} sizes")
        return tuple(self._verdict({name: measured[name][i] for name in self.measured}) for i in range(len(self.sizes)))

    def _verdict(self, measured: Mapping[str, Quantity]) -> Verdict:
        assert self.holds is not None
        if conditions.holds(self.holds, measured, self.paper):
            return "holds"
        if self.order is None or not conditions.holds(self.order, measured, self.paper):
            return "fails"
        factor = ORDER_FACTOR.get(self.kind, OTHER_ORDER_FACTOR)
        is_near = math.isinf(factor) or conditions.within(self.holds, measured, self.paper, factor)
        return "order" if is_near else "fails"


class Paper(PaperRecord):
    """One paper: its reference and its claims, in the order of its text."""

    schema_version: Literal[1]
    paper: str
    title: str
    reference: str
    claims: tuple[Claim, ...]

    @model_validator(mode="after")
    def _unique(self) -> Self:
        ids = [claim.id for claim in self.claims]
        if twice := {x for x in ids if ids.count(x) > 1}:
            raise ValueError(f"claims named twice: {', '.join(sorted(twice))}")
        return self

    def claim(self, id: str) -> Claim:
        """The claim of an id. Raises InputError where there is none."""
        found = next((claim for claim in self.claims if claim.id == id), None)
        if found is None:
            ids = [claim.id for claim in self.claims]
            raise InputError(f"{self.paper} has no claim {id!r}{nearest(id, ids)}")
        return found


PAPERS = ("sgemm-cube", "le-gemm", "bf16x9", "ape", "tf32-tf64")


def is_written(paper: str) -> bool:
    """Whether a paper's file is there."""
    return (places.PAPERS / f"{paper}.yaml").is_file()


def read(paper: str, file: Path | None = None) -> Paper:
    """The claims of a paper (one of PAPERS), or of a file of that form. Raises InputError for what does not fit."""
    if file is None and paper not in PAPERS:
        raise InputError(f"no paper {paper!r}; there are {', '.join(PAPERS)}{nearest(paper, list(PAPERS))}")
    source = file if file is not None else places.PAPERS / f"{paper}.yaml"
    try:
        return Paper.model_validate(common_yaml(source.read_text(encoding="utf-8")))
    except (ValidationError, yaml.YAMLError, OSError, InputError) as error:
        raise InputError(f"{source}: {error}") from None
