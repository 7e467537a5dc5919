"""`hwsim.torch.diff`: where two devices, schemes or libraries part in a model, and how far the difference grows.

The module knows the record of products; how they are computed is others'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

import hwsim
from hwsim.errors import InputError
from hwsim.torch.emulation import emulate
from hwsim.torch.products import Place, active
from hwsim.torch.tensors import array_of


@dataclass(frozen=True)
class Step:
    """One product of the model: its layer, operation and pass, how many of its elements differ in bits, and the largest
    difference relative to the largest value.
    """

    layer: str
    operation: str
    stage: str
    shape: tuple[int, ...]
    differing: int
    largest_difference: float


@dataclass(frozen=True)
class Parting:
    """The answer of `diff`.

    steps: every product in order. first: index of the first one with a difference, None where all bits are equal;
    element: index of its first differing element; values: that element on both sides; row, column: the operands of
    it. sides: the settings of both in words.
    """

    sides: tuple[str, str]
    steps: tuple[Step, ...]
    first: int | None = None
    element: tuple[int, ...] = ()
    values: tuple[float, float] = (0.0, 0.0)
    row: Any = None
    column: Any = None
    _arguments: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)

    @property
    def is_equal(self) -> bool:
        """Whether all products have the same bits."""
        return self.first is None

    def explain(self) -> Any:
        """The element, looked into: `hwsim.diff` of its row and column on both devices (where they part along K, and
        what the units did there). Raises InputError where nothing differs.
        """
        if self.first is None:
            raise InputError("nothing to explain: all products have the same bits")
        sides = []
        for arguments in self._arguments:
            known = {name: arguments[name] for name in ("format", "schedule", "output") if arguments.get(name)}
            rest = {x: y for x, y in arguments.items() if x not in (*known, "device", "scheme", "threads", "library")}
            sides.append(hwsim.Variant(arguments["device"], arguments["scheme"].name, **known, options=rest))
        return hwsim.diff(self.row, self.column, *sides)

    def __str__(self) -> str:
        left, right = self.sides
        lines = [f"left:  {left}", f"right: {right}"]
        if self.first is None:
            return "\n".join([*lines, f"all {len(self.steps)} products have the same bits"])
        step = self.steps[self.first]
        where = step.layer or "(outside of modules)"
        lines.append(
            f"they part at product {self.first + 1} of {len(self.steps)}: {where}, {step.operation}, {step.stage}, "
            f"element {list(self.element)}: {self.values[0]!r} and {self.values[1]!r}"
        )
        lines.append(f"{'layer':<32} {'operation':<18} {'differing':>12} {'largest difference':>20}")
        for one in self.steps[self.first :]:
            total = 1
            for size in one.shape:
                total *= size
            share = f"{one.differing / total:.1%}" if total else "-"
            lines.append(f"{one.layer or '-':<32} {one.operation:<18} {share:>12} {one.largest_difference:>20.2e}")
        return "\n".join(lines)


def diff(
    model: Callable[..., Any],
    x: Any,
    left: str | Mapping[str, Any],
    right: str | Mapping[str, Any],
    **common: Any,
) -> Parting:
    """Run `model` on x (a tensor, or a tuple of arguments) in two ways, and compare its products bit by bit, in order.

    left, right: a device, or a mapping of arguments of `emulate`; common: arguments of both. The model must multiply in
    the same order both times (dropout is as the model's mode says: eval() first). Raises InputError where the two runs
    have unlike products, and as `emulate`.
    """
    given = [{"device": side} if isinstance(side, str) else dict(side) for side in (left, right)]
    runs: list[list[tuple[Place, torch.Tensor]]] = [[], []]
    operands: list[tuple[torch.Tensor, torch.Tensor]] = []
    sides, chosen = [], []
    inputs = x if isinstance(x, tuple) else (x,)
    state = torch.get_rng_state()
    parted: int | None = None
    for index, arguments in enumerate(given):
        torch.set_rng_state(state)

        def observe(place: Place, a: Any, b: Any, c: Any, out: Any, index: int = index) -> None:
            nonlocal parted
            runs[index].append((place, out.detach().clone()))
            at = len(runs[index]) - 1
            if index and parted is None and at < len(runs[0]) and _differs(runs[0][at][1], out).any():
                parted = at
                operands.append((a.detach().clone(), b.detach().clone()))

        with emulate(measure_every=0, **{**common, **arguments}) as run, torch.no_grad():
            run.record.observer = observe
            model(*inputs)
        sides.append(run.report().partition("\n")[0])
        chosen.append(run.settings)
    names = [[(place.layer, place.operation, tuple(out.shape)) for place, out in run] for run in runs]
    if names[0] != names[1]:
        raise InputError(
            f"the two runs have unlike products: {len(names[0])} and {len(names[1])}; is the model random?"
        )
    steps = tuple(
        Step(place.layer, place.operation, place.stage, tuple(one.shape), *_compared(one, other))
        for (place, one), (_, other) in zip(*runs, strict=True)
    )
    if parted is None:
        return Parting((sides[0], sides[1]), steps)
    place, one = runs[0][parted]
    other = runs[1][parted][1]
    element = tuple(int(i) for i in _differs(one, other).nonzero()[0])
    a, b = operands[0]
    *lead, row, column = element
    passes = [settings.of(place.layer, place.stage).arguments or {} for settings in chosen]
    return Parting(
        (sides[0], sides[1]),
        steps,
        parted,
        element,
        (float(one[element]), float(other[element])),
        array_of(a[tuple(lead)][row : row + 1].contiguous()),
        array_of(b[tuple(lead)][:, column : column + 1].contiguous()),
        tuple(passes),
    )


def _differs(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Where two tensors of one dtype differ in bits."""
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[one.element_size()]
    return one.contiguous().view(integer) != other.contiguous().view(integer)


def _compared(one: torch.Tensor, other: torch.Tensor) -> tuple[int, float]:
    count = int(_differs(one, other).sum())
    if not count:
        return 0, 0.0
    x, y = one.double(), other.double()
    largest = float(torch.maximum(x.abs(), y.abs()).nan_to_num().max())
    return count, float((x - y).abs().nan_to_num().max()) / largest if largest else 0.0


__all__ = ["Parting", "Step", "active", "diff"]
