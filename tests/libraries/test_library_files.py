"""The shipped library files: right, sourced, in step with the schema, and each for the devices that name it."""

import re
from pathlib import Path

import pydantic
import pytest

import hwsim
from hwsim import devices
from hwsim.dataflows.families import shipped
from hwsim.dataflows.registry import dataflows
from hwsim.formats import FORMATS
from hwsim.libraries import model as libraries
from hwsim.libraries.model.json_schema import KINDS, schema_text
from hwsim.libraries.model.loader import FURTHER

ROOT = Path(__file__).parents[2]
NAMES = libraries.names()
CHIPS = [name for name, _ in devices.names()]
FAMILIES = {name: family for name, family in shipped().items() if name != "tiled"}


def test_they_are_those_of_the_folder_and_named_as_their_files():
    files = {path.stem for path in (ROOT / "configs/libraries").glob("*.yaml")}
    assert {name for name in files if not f"{name}.yaml".endswith(FURTHER)} == set(NAMES) != set()
    assert all(libraries.load(name).name == name for name in NAMES)


@pytest.mark.skipif(
    tuple(map(int, pydantic.VERSION.split(".")[:2])) < (2, 13),
    reason="the schema's wording is pydantic's, from 2.13 on as in the file",
)
@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_files_are_current(kind):
    path = ROOT / f"configs/schema/{kind}.schema.json"
    assert path.read_text() == schema_text(kind), f"write hwsim.libraries.model.json_schema.schema_text({kind!r}) to it"


@pytest.mark.parametrize("name", NAMES)
def test_every_number_of_a_row_has_a_source(name):
    library = libraries.load(name)
    for at, group in library.kernels.items():
        for row in group.rows:
            for key in ("tile", "k_bytes", "warp"):
                about = library.evidence[f"kernels.{at}.rows.{row}.{key}"]
                assert about.source and about.evidence not in ("unknown", "silicon"), (at, row, key)
        assert set(group.bits) <= {found.bits for found in FORMATS.values()}
    assert set(library.families) <= set(dataflows()) and set(library.devices) <= set(CHIPS)


@pytest.mark.parametrize("chip", CHIPS)
def test_devices_name_a_library_of_their_family(chip):
    device = devices.load(chip)
    library, family = libraries.library_of(device), FAMILIES.get(device.family)
    assert (library is None) == (family is None)
    if library is not None:
        assert device.family in library.families and device.library is not None
        assert family.on(device).library == library.name
        assert (libraries.observed(device) is None) == (device.library.observations is None)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_families_have_tiles_on_the_matrix_unit_and_on_the_lanes(family):
    assert family.shapes and family.lanes and family.split_k.counts[0] == 1
    assert family.name in libraries.load(family.library).families
    assert family.on(devices.load("ascend910a")) is family


def names_of_kernels() -> set[str]:
    """Names of kernels beside cuBLAS's times."""
    text = (ROOT / "lab/hwsim_lab/configs/measured/gemm_times.csv").read_text()
    return set(re.findall(r"(?:nvjet|cutlass|sm[89]0_xmma)\w+", text))


def test_tiles_that_were_seen_are_in_the_names_of_the_recordings():
    """Rows of cuBLAS with evidence of measurements: a name has their tile, either way round, and their bytes of K."""
    library, recorded = libraries.load("cublas-13"), names_of_kernels()
    checked = 0
    for at, group in library.kernels.items():
        for row, kernel in group.rows.items():
            about = library.evidence[f"kernels.{at}.rows.{row}.tile"]
            if about.evidence != "microbenchmark":
                continue
            makes = re.findall(r"\w+_\w+", about.source.split("; ")[1])
            m, n = kernel.tile
            tiles = f"(?:{m}x{n}|{n}x{m})"
            found = [x for x in recorded if x.startswith(tuple(makes)) and re.search(rf"(?:_|tilesize){tiles}[x_]", x)]
            assert found, (at, row)
            checked += 1
    assert checked > 40


def test_another_library_gives_another_tile():
    """The candidates are those of the library that the device file names."""
    sizes = {"m": 2048, "n": 2048, "k": 2048, "format": "fp16", "exact": False}
    same = devices.expanded(devices.load("h200")) | {"name": "mine"}
    other = devices.load(same | {"library": {"name": "cutlass-sm80"}})
    assert libraries.observed(other) is None
    h200, mine, found = (hwsim.run(device=device, **sizes) for device in ("h200", devices.load(same), other))
    assert h200.cycles == mine.cycles != found.cycles
    assert (mine.options["tile"]["k"], found.options["tile"]["k"]) == (64, 32)
