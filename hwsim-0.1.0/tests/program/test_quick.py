"""Classes whose instances a twin makes behave as the frozen dataclasses that they are."""

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, fields, replace

import pytest

from hwsim.program.ir import GlobalTile, Instr, LocalTile, variable
from hwsim.program.quick import quick

TILE = LocalTile("A", 16, 32, "fp16", variable("A.push"), width=64)


@dataclass(frozen=True, slots=True)
class Plain:
    first: int
    second: str = "x"
    third: tuple[int, ...] = ()


@quick
@dataclass(frozen=True, slots=True)
class Quick:
    first: int
    second: str = "x"
    third: tuple[int, ...] = ()


@pytest.mark.parametrize(("given", "named"), [((1,), {}), ((1, "y"), {"third": (2,)}), ((), {"first": 3})])
def test_fields_as_of_a_dataclass(given, named):
    plain, made = Plain(*given, **named), Quick(*given, **named)
    assert type(made) is Quick and made == Quick(*given, **named) and made != plain
    assert [getattr(made, one.name) for one in fields(Quick)] == [getattr(plain, one.name) for one in fields(Plain)]
    assert repr(made) == repr(plain).replace("Plain", "Quick") and hash(made) == hash(plain)
    assert replace(made, second="z") == Quick(made.first, "z", made.third)


def test_frozen():
    with pytest.raises(FrozenInstanceError):
        TILE.rows = 3
    with pytest.raises(FrozenInstanceError):
        del TILE.rows
    assert not hasattr(TILE, "__dict__")


@pytest.mark.parametrize(("given", "named"), [((), {}), ((1, "y", (), 4), {}), ((1,), {"fourth": 2})])
def test_wrong_arguments(given, named):
    with pytest.raises(TypeError):
        Quick(*given, **named)


@pytest.mark.parametrize(
    "one",
    [TILE, GlobalTile("X", variable("i"), variable("core") * 16, 16, 64), Instr("TC", "mma", (TILE,), (TILE, TILE))],
    ids=["local", "global", "instruction"],
)
def test_copies(one):
    for made in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one)), replace(one)):
        assert made == one and type(made) is type(one) and hash(made) == hash(one)
