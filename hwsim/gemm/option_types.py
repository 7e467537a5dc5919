"""Declarations of options: name, type, meaning, unit, allowed values and owner, each in one place.

Validation, the keywords of `hwsim.run` and its help, the flags of the command line, the tables of the documentation,
the search axes of `hwsim tune` and the settings of the record all follow from these declarations. Each owner of options
(a scheme, a dataflow, the epilogue, the machine) lists them as a tuple of `Option`. The module knows no device and no
values given by a user.
"""

from __future__ import annotations

import json
import numbers
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hwsim.errors import InputError, nearest
from hwsim.gemm.mapping import Scalar, Tile

SIDES = ("m", "n", "k")
PAIR_LENGTH = 2
MOST_ELEMENTS = 64  # that are followed in one run


@dataclass(frozen=True, slots=True)
class OptionType:
    """The type of an option's values: validation, parsing and display.

    check(value) returns the value as the record holds it or raises ValueError with what is allowed; parse(text) reads a
    command line's text. metavar, annotation: how the command line and signatures show it.
    """

    name: str
    check: Callable[[Any], Any]
    parse: Callable[[str], Any]
    metavar: str
    annotation: str


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise ValueError("an integer")
    return int(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError("a number")
    return float(value)


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true, false")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a name")
    return value


def _parse_truth(text: str) -> bool | str:
    return {"true": True, "false": False}.get(text.lower(), text)


def _parse_number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _parse_whole(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return text


def _tile(value: Any) -> Any:
    """A Tile, {"m", "n", "k"}, or three numbers in the dataflow's order (kept as a tuple until the dataflow is
    known).
    """
    if isinstance(value, Tile):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    if isinstance(value, tuple | list) and all(isinstance(size, numbers.Real) for size in value):
        return tuple(value)
    raise ValueError("{m, n, k}, or three numbers in the dataflow's order")


def _parse_tile(text: str) -> Any:
    """Parse `176,64,176` or `m=176,k=64,n=176`."""
    try:
        if "=" in text:
            pairs = [part.split("=") for part in text.split(",")]
            return {key.strip(): int(value) for key, value in pairs}
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError("integers with commas, as 176,64,176 or m=176,k=64,n=176") from None


def _pair(value: Any) -> tuple[int, int]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise ValueError("two integers")
    return _whole(value[0]), _whole(value[1])


def _parse_pair(text: str) -> Any:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError("two integers with a comma") from None


def _array(value: Any) -> Any:
    """Any array or nested list; validated later, when the sizes are known. A truth value or a text is none."""
    if isinstance(value, bool | str | bytes):
        raise ValueError("an array")
    return value


def _added(value: Any) -> Any:
    """An array as `_array`, or True: there is one, whose values are not needed."""
    if isinstance(value, bool | str | bytes) and value is not True:
        raise ValueError("an array, or True for cycles alone")
    return value


def _indices(value: Any) -> Any:
    """A slice, a list of indices or a mask; validated later, when the size is known
    (hwsim.operands.operand.selected_indices).
    """
    return value


def _parse_indices(text: str) -> Any:
    """Parse `0:16`, `0:64:4` or `3,5,7`; an empty text is an empty list."""
    try:
        if ":" in text:
            parts = [int(part) if part.strip() else None for part in text.split(":")]
            if len(parts) > 3:
                raise ValueError
            return slice(*parts)
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise ValueError("a range as 0:16, or indices with commas, as 3,5,7") from None


def _places(value: Any) -> Any:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise ValueError("two lists of indices: of rows and of columns")
    return tuple(value)


def _parse_places(text: str) -> Any:
    """`0:16;3,5,7`: indices of rows, then of columns."""
    rows, semicolon, cols = text.partition(";")
    if not semicolon:
        raise ValueError("rows;columns, as 0:16;3,5,7")
    return _parse_indices(rows), _parse_indices(cols)


def _elements(value: Any) -> tuple[tuple[int, ...], ...]:
    allowed = f"1 to {MOST_ELEMENTS} pairs (row, column), each of integers of at least 0, as [(0, 0), (3, 5)]"
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ValueError(allowed)
    elements = []
    for element in value:
        if isinstance(element, str) or not isinstance(element, Iterable):
            raise ValueError(allowed)
        elements.append(tuple([_whole(index) for index in element]))
    if not 1 <= len(elements) <= MOST_ELEMENTS or any(len(x) < PAIR_LENGTH or min(x) < 0 for x in elements):
        raise ValueError(allowed)
    return tuple(dict.fromkeys(elements))


def _parse_elements(text: str) -> Any:
    """Parse `0,0;3,5`: rows and columns."""
    try:
        return [tuple(int(part) for part in element.split(",")) for element in text.split(";")]
    except ValueError:
        raise ValueError("row,column pairs with semicolons, as 0,0;3,5") from None


def _parse_array(text: str) -> Any:
    raise ValueError("an array; on the command line a .npy file")


def _mapping(value: Any) -> Any:
    return value


def _parse_mapping(text: str) -> Any:
    """Parse `split_k=3,epilogue.alpha=2`, a JSON object, or `default`."""
    if text.strip() in ("", "default"):
        return {}
    if text.lstrip().startswith("{"):
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"KEY=VALUE with commas between, or a JSON object (no JSON: {error})") from None
        return dict(parsed)
    plain: dict[str, Any] = {}
    for pair in text.split(","):
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not key or not value:
            raise ValueError("KEY=VALUE with commas between, a JSON object, or default")
        place, _, inner = key.partition(".")
        if inner:
            plain.setdefault(place, {})[inner] = _json_value(value)
        else:
            plain[key] = _json_value(value)
    return plain


def _json_value(text: str) -> Any:
    """Parse a number, null, true or false as in JSON; any other text is a string."""
    try:
        return json.loads(text)
    except ValueError:
        return text


WHOLE = OptionType("whole", _whole, _parse_whole, "N", "int")
NUMBER = OptionType("number", _number, _parse_number, "X", "float")
TRUTH = OptionType("truth", _truth, _parse_truth, "true|false", "bool")
TEXT = OptionType("text", _text, str, "NAME", "str")
TILE = OptionType("tile", _tile, _parse_tile, "M,N,K", "Tile | Mapping[str, int] | tuple[int, ...] | list[int]")
PAIR = OptionType("pair", _pair, _parse_pair, "R,C", "tuple[int, int] | list[int]")
ARRAY = OptionType("array", _array, _parse_array, "FILE.npy", "ArrayLike")
ADDED = OptionType("added", _added, _parse_array, "FILE.npy", "ArrayLike")
INDICES = OptionType("indices", _indices, _parse_indices, "I:J|I,J,...", "slice | ArrayLike")
PLACES = OptionType("places", _places, _parse_places, "ROWS;COLS", "Sequence[slice | ArrayLike]")
ELEMENTS = OptionType("elements", _elements, _parse_elements, "I,J;I,J", "Sequence[Sequence[int]]")
MAPPING = OptionType("mapping", _mapping, _parse_mapping, "KEY=VALUE,...|JSON", "Mapping[str, Any]")
OWN_MESSAGE = (
    "tile",
    "pair",
    "array",
    "added",
    "indices",
    "places",
    "elements",
    "mapping",
    "own",
    "named",
)  # kinds that say themselves what is allowed
_BY_TYPE: dict[type, OptionType] = {int: WHOLE, float: NUMBER, bool: TRUTH, str: TEXT}


@dataclass(frozen=True, slots=True)
class Option:
    """The declaration of one option. kind: an OptionType, or int, float, bool, str.

    default None: the value is left to the device, the data or an estimate. least, most: inclusive bounds of numbers.
    choices: allowed texts. words: texts allowed beside the type's own values ("auto" for a number). unit: of numbers.
    owner: who declares it, as help shows it. axis: values that `hwsim tune` tries. default_text: the default in words,
    where the value does not say it. brief: its line in the short help; options with the same one share the line.
    """

    name: str
    kind: OptionType | type
    default: Scalar
    help: str
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    words: tuple[str, ...] = ()
    unit: str = ""
    owner: str = ""
    axis: tuple[Any, ...] = ()
    default_text: str = ""
    brief: str = ""

    @property
    def type(self) -> OptionType:
        """The option's type."""
        return self.kind if isinstance(self.kind, OptionType) else _BY_TYPE[self.kind]

    @property
    def annotation(self) -> str:
        """The type of its values in a signature, None for the default included."""
        quoted = ", ".join(f'"{word}"' for word in self.words)
        words = [f"Literal[{quoted}]"] if quoted else []
        return " | ".join((self.type.annotation, *words, "None"))

    @property
    def flag(self) -> str:
        """The option's flag on the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def metavar(self) -> str:
        """Placeholder for the value in help texts."""
        if self.choices:
            return "|".join(self.choices)
        return "|".join((self.type.metavar, *self.words))

    @property
    def limits(self) -> str:
        """The allowed texts, or the bounds of numbers; empty where there are none."""
        bounds = (("at least", self.least), ("at most", self.most))
        return ", ".join(self.choices) or " and ".join(f"{word} {_plain(x)}" for word, x in bounds if x is not None)

    @property
    def allowed(self) -> str:
        """The allowed values in words."""
        if self.choices:
            return ", ".join(self.choices)
        if self.type is WHOLE or self.type is NUMBER:
            kind = "an integer" if self.type is WHOLE else "a number"
            kind += f" of {self.limits}" if self.limits else ""
        elif self.type is TRUTH:
            kind = "true, false"
        else:
            kind = "a name" if self.type is TEXT else self.type.metavar
        return ", or ".join((kind, *(repr(word) for word in self.words)))

    def read(self, text: str) -> Any:
        """Parse a command line's text; text that is no value of the type is returned as it is, for `check` to refuse.

        Raises InputError for text of a kind with a form of its own (tiles, ranges, mappings) that has not that form.
        """
        if text in self.words:
            return text
        try:
            return self.type.parse(text)
        except ValueError as error:
            raise InputError(f"{self.name} = {text!r}; allowed: {error}") from None

    def check(self, value: object, where: str = "") -> Any:
        """The validated value as the record holds it; None: the default.

        where: whose option it is, before the message. Raises InputError with what was got and what is allowed.
        """
        if value is None:
            return self.default
        if isinstance(value, str) and value in self.words:
            return value
        before = f"{where}: " if where else ""
        try:
            value_read = self.type.check(value)
        except (ValueError, TypeError) as error:
            allowed = str(error) if self.type.name in OWN_MESSAGE else self.allowed
            raise InputError(f"{before}{self.name} = {value!r}; allowed: {allowed}") from None
        if isinstance(value_read, int | float) and not isinstance(value_read, bool):
            is_low = self.least is not None and not value_read >= self.least
            is_high = self.most is not None and not value_read <= self.most
            if is_low or is_high:
                raise InputError(f"{before}{self.name} = {value!r}; allowed: {self.allowed}")
        if self.choices and value_read not in self.choices:
            near = nearest(str(value_read), self.choices)
            raise InputError(f"{before}{self.name} = {value!r}; allowed: {self.allowed}{near}")
        return value_read


def keyed_tile(value: Any, order: tuple[str, ...]) -> Tile | None:
    """A Tile from {"m", "n", "k"} or from numbers in `order`. Raises InputError for anything else."""
    if value is None or isinstance(value, Tile):
        return value
    if not isinstance(value, Mapping):
        if len(value) != len(order):
            raise InputError(
                f"tile {tuple(value)}: {len(value)} numbers; allowed: {len(order)}, in the order {', '.join(order)}"
            )
        value = dict(zip(order, value, strict=True))
    if set(value) != set(order):
        raise InputError(f"tile has keys {', '.join(map(str, value))}; allowed: {', '.join(order)}")
    for key, size in value.items():
        if isinstance(size, bool) or not isinstance(size, numbers.Integral) or size < 1:
            raise InputError(f"tile {key} = {size!r}; allowed: an integer of at least 1")
    return Tile(*(int(value[side]) for side in SIDES))


def by_name(options: Iterable[Option]) -> dict[str, Option]:
    """The options as a mapping by name, in order. Raises ValueError where two have one name."""
    options_by_name: dict[str, Option] = {}
    for option in options:
        if option.name in options_by_name:
            raise ValueError(f"option {option.name!r} is declared twice")
        options_by_name[option.name] = option
    return options_by_name


def checked(options: Iterable[Option], values: Mapping[str, object], where: str) -> dict[str, Any]:
    """Values of all options, validated: those given (text is parsed first), and defaults for the others.

    Raises InputError, also for unknown names.
    """
    declared = by_name(options)
    for name in values:
        if name not in declared:
            raise InputError(
                f"{where} has no option {name!r}; it has {', '.join(declared) or 'none'}{nearest(name, list(declared))}"
            )
    read = {name: declared[name].read(value) if isinstance(value, str) else value for name, value in values.items()}
    return {name: option.check(read.get(name), where) for name, option in declared.items()}


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else f"{number:g}"
