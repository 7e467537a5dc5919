"""What a sweep is asked for: a study file or mapping, validated, and the grid of its points. It runs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from hwsim.datafiles.yaml_text import FileProblem, Mark, Node, from_data, parse, plain
from hwsim.devices import load
from hwsim.devices.numbers import new_values
from hwsim.errors import ConfigError, HwsimError, InputError, nearest
from hwsim.gemm.option_types import ARRAY, Option
from hwsim.host.input_files import read_text
from hwsim.request.declarations import DEFAULT_DEVICE, DEFAULT_SCHEME, DISTRIBUTION, OWN, Declared, declared_by_name
from hwsim.schemes import Scheme, is_scheme_file, scheme_of
from hwsim.studies.sweep_schemes import with_labels
from hwsim.studies.workload import Workload, merged, onnx_workload, scalesim_workload

KEYS = ("title", "devices", "schemes", "shapes", "workload", "m", "n", "k", "options", "seeds", "exact", "energy")
SIZES = ("m", "n", "k")
WORKLOAD_KEYS = ("scalesim", "onnx", "dimensions", "partial")
#: Options of a run that the study says in its own way, or that change no row.
APART = (*SIZES, "seed", "exact", "threads", "engine")
DEFAULT_SIZES = (1024,)


#: Other numbers of a device: (path or pattern, value) of each.
SetNumbers = tuple[tuple[str, Any], ...]
SET = "set"


@dataclass(frozen=True, slots=True)
class SweepDevice:
    """A device of a study: its name or file, options for it alone, and numbers that differ from its file's."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    numbers: SetNumbers = ()


@dataclass(frozen=True, slots=True)
class SweepScheme:
    """A scheme of a study: its name, FILE.py:NAME or label, and options for it alone."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One run: device and its other numbers, scheme, options of hwsim.run by name (with sizes and seed), and the name
    of its shape, or "".
    """

    device: str
    scheme: str
    shape: str
    options: Mapping[str, Any]
    numbers: SetNumbers = ()


@dataclass(frozen=True, slots=True)
class SweepStudy:
    """A validated study. shapes: each with options that hold for it alone; axes: option -> its values.

    shapes: (name, {"m", "n", "k", ...}) in the order of the grid. scheme_objects: those of `schemes` that are labels of
    Scheme objects.
    """

    title: str
    devices: tuple[SweepDevice, ...]
    schemes: tuple[SweepScheme, ...]
    shapes: tuple[tuple[str, Mapping[str, Any]], ...]
    axes: Mapping[str, tuple[Any, ...]]
    seeds: tuple[int, ...]
    exact: bool
    energy: bool = False
    scheme_objects: Mapping[str, Scheme] = field(default_factory=dict)

    @property
    def has_costs(self) -> bool:
        """Whether rows say energy and area: where the study asks, or a device's own file gives them."""
        chips = [load(device.name) for device in self.devices]
        return self.energy or any(chip.energy is not None or chip.area is not None for chip in chips)

    @property
    def parameters(self) -> list[str]:
        """The columns of a table of points: what was asked, in the order of the grid."""
        alone = [*(device.options for device in self.devices), *(scheme.options for scheme in self.schemes)]
        groups = (alone, [options for _, options in self.shapes], [self.axes])
        named = [name for group in groups for options in group for name in options if name not in SIZES]
        shape = ["shape"] if any(name for name, _ in self.shapes) else []
        seed = ["seed"] if self.exact or self.seeds != (0,) else []
        return list(dict.fromkeys(["device", *self.paths, "scheme", *shape, *SIZES, *seed, *named]))

    @property
    def paths(self) -> list[str]:
        """The paths or patterns of numbers that the study sets, each a column."""
        return list(dict.fromkeys(path for device in self.devices for path, _ in device.numbers))

    def points(self) -> Iterator[SweepPoint]:
        """All points: the device varies slowest, then scheme, options, shape; the seed fastest.

        The options of a shape stand before a scheme's, these before a device's, and these before the study's.
        """
        for device, scheme, values in product(self.devices, self.schemes, product(*self.axes.values())):
            common = dict(zip(self.axes, values, strict=True)) | dict(device.options) | dict(scheme.options)
            for (name, shape), seed in product(self.shapes, self.seeds):
                options = common | dict(shape) | {"seed": seed}
                yield SweepPoint(device.name, scheme.name, name, options, device.numbers)

    def with_numbers(self, numbers: Mapping[str, Sequence[Any]]) -> SweepStudy:
        """The study with every combination of these numbers on each of its devices; a device's own ones of the same
        path give way. Raises InputError for a path that a device does not have.
        """
        for device in self.devices:
            for path, values in numbers.items():
                check_numbers(device.name, path, values)
        devices = [
            SweepDevice(device.name, device.options, tuple((dict(device.numbers) | dict(combination)).items()))
            for device in self.devices
            for combination in combinations_of(numbers)
        ]
        return replace(self, devices=tuple({repr(device): device for device in devices}.values()))


def combinations_of(numbers: Mapping[str, Sequence[Any]]) -> list[SetNumbers]:
    """Every combination of the values of numbers, the last path the fastest; one that is empty where there are none."""
    return [tuple(zip(numbers, values, strict=True)) for values in product(*numbers.values())]


def check_numbers(device: str, path: str, values: Sequence[Any]) -> None:
    """Raise InputError for a path that the device does not have, and for values that are no numbers."""
    chip = load(device)
    for value in values:
        new_values(chip, {path: value})


def read_study(study: str | Path | Mapping[str, Any]) -> SweepStudy:
    """The study in a YAML file, or in a mapping of that shape. Raises ConfigError with all problems at once."""
    objects: Mapping[str, Scheme] = {}
    if isinstance(study, Mapping):
        study, objects = with_labels(study)
        tree, problems = from_data(study, "study")
    else:
        text = read_text(Path(study), "study")
        tree, problems = parse(text, str(study))
    folder = Path() if isinstance(study, Mapping) else Path(study).parent
    reader = _Reader(list(problems), folder, objects.values())
    sweep_study = reader.study(tree)
    if reader.problems:
        ordered = sorted(set(reader.problems), key=lambda problem: (problem.mark, problem.path, problem.text))
        raise ConfigError([str(problem) for problem in ordered], "study")
    return replace(sweep_study, scheme_objects=objects)


class _Reader:
    """Collects the problems of a study while its parts are read."""

    def __init__(self, problems: list[FileProblem], folder: Path, schemes: Iterable[Scheme]) -> None:
        self.problems = problems
        self.folder = folder
        self.unregistered = list(schemes)
        self.declared: Mapping[str, list[Declared]] = {}
        self.options: list[str] = []

    def study(self, tree: Node) -> SweepStudy:
        entries = self._mapping(tree, "", KEYS)
        schemes = self._list(entries, "schemes")
        names = [self._scheme_name(node, path) for path, node in schemes]  # a file's scheme has options of its own
        self.declared = declared_by_name(self.unregistered)
        self.options = [
            name
            for name, entries_of in self.declared.items()
            if entries_of[0].option.type is not ARRAY and name not in APART
        ]
        title = entries.get("title")
        devices = self._list(entries, "devices")
        shapes = self._list(entries, "shapes")
        return SweepStudy(
            title="" if title is None else self._text(title, "title"),
            devices=tuple(device for path, node in devices for device in self._devices(node, path))
            or (SweepDevice(DEFAULT_DEVICE),),
            schemes=tuple(
                scheme
                for name, (path, node) in zip(names, schemes, strict=True)
                for scheme in self._schemes(name, node, path)
            )
            or (SweepScheme(DEFAULT_SCHEME),),
            shapes=self._shapes(entries, shapes),
            axes=self._axes(entries.get("options")),
            seeds=tuple(self._whole(node, path, 0) for path, node in self._list(entries, "seeds")) or (0,),
            exact=self._truth(entries.get("exact"), "exact"),
            energy=self._truth(entries.get("energy"), "energy"),
        )

    def _refuse(self, mark: Mark, path: str, text: str) -> None:
        self.problems.append(FileProblem(mark, path, text))

    def _mapping(self, node: Node, path: str, allowed: tuple[str, ...]) -> dict[str, Node]:
        if not isinstance(node.value, dict):
            self._refuse(node.mark, path, f"needs a mapping with keys of {', '.join(allowed)}")
            return {}
        for key in node.value:
            if key not in allowed:
                where, hint = f"{path}.{key}" if path else key, nearest(key, allowed)
                is_short = len(allowed) <= len(KEYS)
                listed = ", ".join(allowed) if is_short else "options of hwsim.run (hwsim run --help-all)"
                self._refuse(node.keys[key], where, f"unknown key '{key}'; allowed: {listed}{hint}")
        return {key: child for key, child in node.value.items() if key in allowed}

    def _list(self, entries: Mapping[str, Node], key: str, within: str = "") -> list[tuple[str, Node]]:
        """The values of a key, each with its path; a single value is a list of one."""
        node, path = entries.get(key), f"{within}.{key}" if within else key
        if node is None:
            return []
        if not isinstance(node.value, list):
            return [(path, node)]
        if not node.value:
            self._refuse(node.mark, path, "an empty list; give at least one value, or leave the key out")
        return [(f"{path}.{i}", child) for i, child in enumerate(node.value)]

    def _text(self, node: Node, path: str) -> str:
        if not isinstance(node.value, str) or not node.value:
            self._refuse(node.mark, path, f"got {plain(node)!r}; needs text")
            return ""
        return node.value

    def _scheme_name(self, node: Node, path: str) -> str:
        """The name of an entry's scheme; a file's from the folder of the study."""
        if isinstance(node.value, dict):
            if "scheme" not in node.value:
                self._refuse(node.mark, path, "missing key 'scheme'")
                return DEFAULT_SCHEME
            node, path = node.value["scheme"], f"{path}.scheme"
        name = self._text(node, path)
        if not is_scheme_file(name):
            return name
        name = str(self.folder / name)
        try:
            self.unregistered.append(scheme_of(name))
        except InputError as error:
            self._refuse(node.mark, path, str(error))
        return name

    def _schemes(self, name: str, node: Node, path: str) -> list[SweepScheme]:
        """The schemes of an entry: one, or one for each combination of the values of its options."""
        if not isinstance(node.value, dict):
            return [SweepScheme(name)]
        entries = self._mapping(node, path, ("scheme", *self.options))
        values = {
            key: [self._value(key, child, where) for where, child in self._list(entries, key, path)]
            for key in entries
            if key != "scheme"
        }
        return [SweepScheme(name, dict(combination)) for combination in combinations_of(values)]

    def _whole(self, node: Node, path: str, least: int) -> int:
        value = node.value
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            self._refuse(node.mark, path, f"got {plain(node)!r}; needs an integer of at least {least}")
            return least
        return value

    def _truth(self, node: Node | None, path: str) -> bool:
        if node is not None and not isinstance(node.value, bool):
            self._refuse(node.mark, path, f"got {plain(node)!r}; needs true or false")
        return node is not None and node.value is True

    def _devices(self, node: Node, path: str) -> list[SweepDevice]:
        """The devices of an entry: one, or one for each combination of the numbers that it sets."""
        if not isinstance(node.value, dict):
            return [SweepDevice(self._text(node, path))]
        entries = self._mapping(node, path, ("device", SET, *self.options))
        if "device" not in entries:
            self._refuse(node.mark, path, "missing key 'device'")
            return []
        name = self._text(entries.pop("device"), f"{path}.device")
        combinations = self._combinations(entries.pop(SET), f"{path}.{SET}", name) if SET in entries else [()]
        options = {key: self._value(key, child, f"{path}.{key}") for key, child in entries.items()}
        return [SweepDevice(name, options, combination) for combination in combinations]

    def _combinations(self, node: Node, path: str, device: str) -> list[SetNumbers]:
        """Every combination of the numbers that an entry sets; of a list each mapping's, whose numbers go together."""
        if not isinstance(node.value, list):
            return combinations_of(self._numbers(node, path, device))
        return [
            combination
            for where, child in self._list({SET: node}, SET, path.removesuffix(f".{SET}"))
            for combination in combinations_of(self._numbers(child, where, device))
        ]

    def _numbers(self, node: Node, path: str, device: str) -> dict[str, list[Any]]:
        """The values of each number that an entry sets, by path or pattern."""
        if not isinstance(node.value, dict):
            text = "needs a mapping of numbers of the device to their values: {cores: [64, 128]}, or a list of those"
            self._refuse(node.mark, path, text)
            return {}
        numbers: dict[str, list[Any]] = {}
        for key in node.value:
            children = self._list(node.value, key, path)
            numbers[key] = [plain(child) for _, child in children]
            try:
                check_numbers(device, key, numbers[key])
            except HwsimError as error:
                self._refuse(node.keys[key], f"{path}.{key}", str(error))
        return numbers

    def _shapes(
        self, entries: Mapping[str, Node], shapes: list[tuple[str, Node]]
    ) -> tuple[tuple[str, Mapping[str, Any]], ...]:
        grid = {
            size: [self._whole(node, path, 1) for path, node in self._list(entries, size)] or list(DEFAULT_SIZES)
            for size in SIZES
        }
        workload = entries.get("workload")
        if not shapes and workload is None:
            return tuple(("", dict(zip(SIZES, sizes, strict=True))) for sizes in product(*grid.values()))
        for size in SIZES:
            if size in entries:
                text = "a study has shapes or a workload, or lists of m, n and k; not both"
                self._refuse(entries[size].mark, size, text)
        if workload is not None:
            if shapes:
                self._refuse(workload.mark, "workload", "a study has shapes or a workload; not both")
            return self._workload(workload)
        return tuple(self._shape(node, path) for path, node in shapes)

    def _workload(self, node: Node) -> tuple[tuple[str, Mapping[str, Any]], ...]:
        """The layers of a workload file; equal ones are one shape, with their number in its name."""
        entries = self._mapping(node, "workload", WORKLOAD_KEYS)
        files = [key for key in ("scalesim", "onnx") if key in entries]
        if len(files) != 1:
            self._refuse(node.mark, "workload", "needs one file: {scalesim: FILE.csv} or {onnx: FILE.onnx}")
            return ()
        (kind,) = files
        path = self.folder / self._text(entries[kind], f"workload.{kind}")
        dimensions = plain(entries["dimensions"]) if "dimensions" in entries else {}
        partial = plain(entries["partial"]) if "partial" in entries else False
        if not isinstance(dimensions, dict) or (dimensions and kind != "onnx"):
            text = f"got {dimensions!r}; needs a mapping of names to sizes, with an ONNX file"
            self._refuse(entries["dimensions"].mark, "workload.dimensions", text)
            return ()
        if not isinstance(partial, bool):
            self._refuse(entries["partial"].mark, "workload.partial", f"got {partial!r}; needs true or false")
            return ()
        try:
            workload: Workload = onnx_workload(path, dimensions) if kind == "onnx" else scalesim_workload(path)
        except InputError as error:
            self._refuse(node.mark, "workload", str(error))
            return ()
        for name, reason in () if partial else workload.refused:
            text = f"node {name} cannot be a shape: {reason}; partial: true leaves such nodes out"
            self._refuse(node.mark, "workload", text)
        if not workload.layers:
            self._refuse(node.mark, "workload", f"{path} has no layer that is a product of matrices")
        return tuple(
            (
                layer.name if layer.count == 1 else f"{layer.name} (x {layer.count})",
                {"m": layer.m, "n": layer.n, "k": layer.k},
            )
            for layer in merged(workload.layers)
        )

    def _shape(self, node: Node, path: str) -> tuple[str, Mapping[str, Any]]:
        if isinstance(node.value, list):
            if len(node.value) != len(SIZES):
                self._refuse(node.mark, path, "needs three sizes, [m, n, k]")
                return "", {}
            sizes = zip(SIZES, node.value, strict=True)
            return "", {size: self._whole(size_node, f"{path}.{size}", 1) for size, size_node in sizes}
        entries = self._mapping(node, path, ("name", *SIZES, *self.options))
        missing = [size for size in SIZES if size not in entries]
        if missing and "conv" not in entries:
            self._refuse(node.mark, path, f"missing {', '.join(missing)}")
        name = self._text(entries.pop("name"), f"{path}.name") if "name" in entries else ""
        shape_sizes = {size: self._whole(entries.pop(size), f"{path}.{size}", 1) for size in SIZES if size in entries}
        return name, shape_sizes | {key: self._value(key, child, f"{path}.{key}") for key, child in entries.items()}

    def _axes(self, node: Node | None) -> dict[str, tuple[Any, ...]]:
        if node is None:
            return {}
        axes = {}
        for key in (entries := self._mapping(node, "options", tuple(self.options))):
            values = self._list(entries, key)
            axes[key] = tuple(self._value(key, child, f"options.{path}") for path, child in values)
        return axes

    def _value(self, name: str, node: Node, path: str) -> Any:
        """An option's value. One that no declaration of the option takes is refused here, others by the run."""
        value, reasons = plain(node), []
        for entry in self.declared.get(name, ()):
            try:  # text for an option of a dataflow or a scheme is parsed, as a run does
                is_parsed = isinstance(value, str) and entry.kind not in OWN
                entry.option.check(entry.option.read(value) if is_parsed else value)
            except InputError as error:
                reasons.append(str(error))
            else:
                return value
        if reasons and isinstance(value, list):
            text = f"{name} = {value!r}: one value stands here; lists of values go under options: or in schemes:"
            self._refuse(node.mark, path, text)
        elif reasons:
            takers = [other for other, entries in self.declared.items() if _has_choice(entries, value)]
            hint = f"; {value!r} is a value of {' and '.join(takers)}" if takers else ""
            self._refuse(node.mark, path, "; or ".join(dict.fromkeys(reasons)) + hint)
        return value


def _has_choice(entries: Sequence[Declared], value: Any) -> bool:
    """Whether an option names a value among its choices, or as a distribution."""
    return isinstance(value, str) and any(_names(entry.option, value) for entry in entries)


def _names(option: Option, value: str) -> bool:
    try:
        return value in option.choices or (option.type is DISTRIBUTION and option.check(value) == value)
    except InputError:
        return False
