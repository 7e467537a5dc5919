"""Every shipped device file, and the 910A's numbers against their tables."""

import json
import re
import typing
from pathlib import Path

import pydantic
import pytest

from hwsim import devices
from hwsim.datafiles.field_comments import field_comments
from hwsim.datafiles.yaml_text import parse, plain
from hwsim.devices import registry
from hwsim.devices.json_schema import schema_text
from hwsim.devices.model import InstructionModel
from hwsim.devices.model.chip import DotUnit
from hwsim.errors import ConfigError
from hwsim.host.places import package_folder
from hwsim.libraries import model as libraries
from hwsim.numerics import units

SCHEMAS = Path(__file__).parents[2] / "configs/schema"
SHIPPED = sorted(
    item.name.removesuffix(".yaml") for item in registry.package_folder().iterdir() if item.name.endswith(".yaml")
)
MMAD = "mmad.m16n16k16.f32.f16.f16"
FITTING = re.compile(r"calibrated|fitted|at which the simulated|no mean error")


@pytest.fixture(scope="module")
def ascend():
    return devices.load("ascend910a")


def numbers(data, path=()):
    if isinstance(data, dict):
        for key, child in data.items():
            yield from numbers(child, (*path, key))
    elif isinstance(data, int | float) and not isinstance(data, bool) and path != ("schema_version",):
        yield ".".join(path)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_number_says_where_it_comes_from(name):
    device = devices.load(name)
    assert device.name == name
    paths = set(numbers(device.model_dump(mode="json", by_alias=True)))
    assert paths <= set(device.evidence)
    assert all(about.source for about in device.evidence.values())
    assert device.citations  # shipped files name their sources by key
    used = {
        key.strip()
        for about in device.evidence.values()
        if not about.source.startswith("default of the schema")
        for key in about.source.split(";")[0].split(",")
    }
    assert used == set(device.citations) & used


@pytest.mark.parametrize("name", SHIPPED)
def test_what_was_fitted_to_times_says_so(name):
    """No number set by measured work has the evidence of a measurement of its own, and times are never `silicon`."""
    device = devices.load(name)
    for path, about in device.evidence.items():
        if about.evidence not in ("assumption", "unknown"):
            assert (about.evidence == "fitted") == bool(about.fitted_to), path
            assert about.fitted_to or not FITTING.search(f"{about.source} {about.note}"), path
        is_of_bits = path.startswith(("dot_units.", "library.")) or path.endswith(".unit")
        assert not about.evidence.startswith("silicon") or is_of_bits, path


#: Chips of which results were recorded: by this project, with the keys of such sources; by others, with theirs.
OWN_RESULTS = {"h200": {"H200", "H200NAN"}, "h100": {"H100"}}
RESULTS_OF_OTHERS = {
    **dict.fromkeys(("v100", "a100", "a2", "ada", "l40s", "h100", "h200", "b200", "gb200"), "CAP"),
    "mi300x": "PROBE",
}


@pytest.mark.parametrize("name", SHIPPED)
def test_silicon_is_said_of_units_whose_results_were_compared(name):
    """By this project's recordings or by others'; what a simulator's authors compared is a publication's word."""
    device = devices.load(name)
    for path, about in device.evidence.items():
        keys = {key.strip() for key in about.source.split(";")[0].split(",")}
        if path.startswith("dot_units.") and about.evidence == "silicon":
            assert keys & OWN_RESULTS.get(name, set()), path
        if path.startswith("dot_units.") and about.evidence == "silicon-by-others":
            assert RESULTS_OF_OTHERS.get(name) in keys, path


@pytest.mark.parametrize("name", ["t4", "rtx2080ti", "mi100", "mi210", "rtxpro6000", "rtx4090", "a40", "h20", "b300"])
def test_chips_without_recorded_results_have_no_silicon(name):
    device = devices.load(name)
    assert not [path for path, about in device.evidence.items() if about.evidence.startswith("silicon")]


def test_no_result_of_tcgen05_was_recorded():
    for name in ("b200", "gb200"):
        device = devices.load(name)
        levels = {one: devices.numerics_evidence(device, one) for one in device.instructions()}
        assert all(level > "" and not level.startswith("silicon") for one, level in levels.items() if "tcgen05" in one)
        assert levels["mma.m16n8k16.f32.f16.f16.f32"] == "silicon-by-others"


def test_numbers_that_calibration_set():
    fitted = {
        "h200": ["sustained_clock_mhz.fp16", "power_limit.clock_mhz.fp16", "l2.coalesced_reads"],
        "v100": ["sustained_clock_mhz.fp16"],
        "a100": ["sustained_clock_mhz.tf32"],
        "b200": ["links.GM_SMEM.startup_cycles"],
        "ascend910b3": ["links.L1_L0A.overhead_cycles", "links.L0C_GM.bytes_per_cycle", "engines.M.issue_cycles"],
    }
    fitted["h200"].append("instructions.wgmma.m64nNk8.f32.tf32.tf32.timing.mn_major_macs_per_cycle.any")
    for name, paths in fitted.items():
        evidence = devices.load(name).evidence
        assert {evidence[path].evidence for path in paths} == {"fitted"}, name
    # A base's fitted numbers, here of another card: no better than what the variant says of it.
    about = devices.load("a100pcie").evidence["sustained_clock_mhz.tf32"]
    assert about.evidence == "assumption" and about.fitted_to


@pytest.mark.parametrize("name", SHIPPED)
def test_the_expanded_form_loads_to_the_same(name):
    device = devices.load(name)
    again = devices.load(devices.expanded(device))
    assert (again, again.sha256, again.evidence) == (device, device.sha256, device.evidence)


def test_the_910a_has_the_numbers_of_its_table(ascend):
    assert (ascend.cores, ascend.clock_mhz) == (32, 1000)
    assert {n: m.capacity_bytes for n, m in ascend.memories.items()} == {
        "L0A": 64 << 10,
        "L0B": 64 << 10,
        "L0C": 256 << 10,
        "L1": 1 << 20,
        "UB": 248 << 10,
    }
    rates = {n: (k.engine, k.source, k.target, k.bytes_per_cycle, k.startup_cycles) for n, k in ascend.links.items()}
    assert rates == {
        "GM_L1": ("MTE2", "GM", "L1", 64, 190),
        "GM_UB": ("MTE2", "GM", "UB", 64, 190),
        "L1_L0A": ("MTE1", "L1", "L0A", 256, 2),
        "L1_L0B": ("MTE1", "L1", "L0B", 128, 2),
        "L1_UB": ("MTE1", "L1", "UB", 128, 2),
        "UB_L1": ("MTE3", "UB", "L1", 128, 2),
        "L0C_UB": ("V", "L0C", "UB", 256, 0),
        "UB_GM": ("MTE3", "UB", "GM", 64, 121),
    }
    assert (ascend.hbm.capacity_bytes, ascend.hbm.bytes_per_second) == (32 << 30, 1.2e12)
    assert (ascend.l2.capacity_bytes, ascend.l2.bytes_per_second) == (32 << 20, 3.5e12)
    assert {n: e.queue_depth for n, e in ascend.engines.items()} == dict.fromkeys(
        ("S", "V", "M", "MTE1", "MTE2", "MTE3"), 32
    )
    assert ascend.flags.per_pipe_pair == 4
    assert ascend.fractal == {"rows": 16, "row_bytes": 32}
    assert (ascend.vector.repeat_bytes, ascend.vector.overhead_cycles) == (256, 24)
    assert set(ascend.vector.cycles_per_repeat.values()) == {1}


@pytest.mark.parametrize(("name", "macs"), [(MMAD, 4096), ("mmad.m16n16k32.s32.s8.s8", 8192)])
def test_the_910as_cube_rate_and_mmad_times(ascend, name, macs):
    mmad = ascend.matrix_instructions[name]
    timing = mmad.timing
    assert mmad.m * mmad.n * mmad.k / timing.issue_interval_cycles == macs
    assert timing.overhead_cycles == 9
    assert timing.overhead_cycles + timing.drain_cycles == 23  # one synchronous instruction
    assert timing.accumulate_latency_cycles == 10
    assert mmad.memories == ("L0A", "L0B", "L0C")


def test_the_910as_fp16_peak_is_262_tflops(ascend):
    mmad = ascend.matrix_instructions[ascend.native["fp16"]]
    assert 2 * mmad.m * mmad.n * mmad.k * ascend.cores * ascend.clock_mhz * 1e6 == pytest.approx(262.144e12, rel=1e-15)


def test_the_910as_default_unit_is_exact_steps_of_16_that_saturate(ascend):
    spec = devices.dot_spec(ascend, MMAD)
    saturating = units.Specials(operands="saturate", overflow="saturate", zero="ieee")
    assert spec == units.DotSpec(units.ExactUnit(16, "RNE", saturating), "fp16", "fp16", "fp32", "fp32")
    assert devices.numerics_evidence(ascend, MMAD) == "assumption"
    assert devices.timing_evidence(ascend, MMAD) == "assumption"
    assert devices.weakest(ascend, "cores", "clock_mhz", "hbm.bytes_per_second") == "paper"


@pytest.mark.parametrize("unit", ["cube", "cube_tree", "cube_fused", "cube_fma_chain"])
def test_one_field_switches_the_910as_unit(unit):
    device = devices.load(
        {"extends": "ascend910a", "schema_version": 1, "name": "other", "instructions": {MMAD: {"unit": unit}}}
    )
    assert devices.dot_spec(device, MMAD).unit.model == device.dot_units[unit].model
    assert devices.dot_spec(device, MMAD).unit.specials.operands == "saturate"


def test_disagreeing_sources_keep_their_span(ascend):
    assert ascend.evidence["links.L1_L0A.bytes_per_cycle"].span == (256, 512)
    assert ascend.evidence["cores"].span == (30, 32)
    assert ascend.evidence["dot_units.cube_fused.fraction_bits"].span == (24, 27)


def test_device_files_hold_the_records_of_the_numerics():
    """No second declaration: the union that a device file chooses from is the one that the arithmetic takes."""
    assert typing.get_args(DotUnit)[0] == units.Unit
    assert {type(unit) for name in registry.shipped() for unit in devices.load(name).dot_units.values()} <= {
        *typing.get_args(units.Unit)
    }


def test_a_units_ranges_are_those_of_its_record(small):
    tree = plain(parse(small, "text")[0])
    unit = {"model": "fused", "terms": 4, "fraction_bits": 1001, "floor_exponent": -5001, "source": "s"}
    tree["dot_units"]["unit"] = unit | {"evidence": "paper", "specials": {"nan_code": 1 << 64}}
    with pytest.raises(ConfigError) as refused:
        devices.load(tree)
    for text in (
        "dot_units.unit.fraction_bits: got 1001; must be at most 1000",
        "dot_units.unit.floor_exponent: got -5001; must be at least -5000",
        "dot_units.unit.specials.nan_code: got 18446744073709551616; must be less than 1.84467e+19",
    ):
        assert text in str(refused.value)


@pytest.mark.parametrize("inner", [{"terms": 16}, {"model": "exact", "terms": 16}, 3])
def test_an_inner_unit_names_its_model(small, inner):
    tree = plain(parse(small, "text")[0])
    unit = {"model": "composite", "terms": 4, "operand_format": "fp16", "modulus": 4, "selections": [[0]]}
    tree["dot_units"]["unit"] = unit | {"inner": inner, "source": "test", "evidence": "paper"}
    said = r"dot_units\.unit\.inner(\.model: (missing key|got 'exact')|: got 3; needs a mapping)"
    with pytest.raises(ConfigError, match=said):
        devices.load(tree)


def test_a_composite_unit_becomes_nested_records(small):
    text = small.replace(
        "model: exact\n    terms: 4",
        """model: composite
    terms: 32
    inner: {model: fused, terms: 16, fraction_bits: 25, floor_exponent: -133}
    operand_format: fp16
    modulus: 4
    selections: [[0, 1], [2, 3]]""",
    ).replace("k: 16", "k: 32")
    device = devices.load(plain(parse(text, "text")[0]))
    inner = units.FusedUnit(16, 25, -133)
    assert devices.dot_spec(device, "mm").unit == units.CompositeUnit(32, inner, "fp16", 4, ((0, 1), (2, 3)))
    assert device.evidence["dot_units.unit.selections"].source == "test"


@pytest.mark.skipif(
    tuple(map(int, pydantic.VERSION.split(".")[:2])) < (2, 13),
    reason="the schema's wording is pydantic's, from 2.13 on as in the file",
)
def test_the_schema_file_is_current():
    assert (SCHEMAS / "device.schema.json").read_text() == schema_text(), (
        "write hwsim.devices.json_schema.schema_text() to it"
    )


def complaints(schema, data, root, path="$"):
    """A small checker of the part of JSON Schema that the device schema uses."""
    found = []
    if "$ref" in schema:
        found += complaints(root["$defs"][schema["$ref"].rsplit("/", 1)[1]], data, root, path)
    if "if" in schema:
        found += complaints(schema["else" if complaints(schema["if"], data, root) else "then"], data, root, path)
    if "anyOf" in schema and all(complaints(case, data, root, path) for case in schema["anyOf"]):
        found.append(f"{path}: fits no case")
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "boolean": bool,
        "null": type(None),
        "integer": int,
        "number": (int, float),
    }
    kind = schema.get("type")
    if kind and (not isinstance(data, kinds[kind]) or (isinstance(data, bool) and kind != "boolean")):
        return [*found, f"{path}: no {kind}"]
    if data != schema.get("const", data) or data not in schema.get("enum", [data]):
        found.append(f"{path}: not allowed")
    if isinstance(data, str) and not re.search(schema.get("pattern", ""), data):
        found.append(f"{path}: pattern")
    if isinstance(data, int | float) and not (
        schema.get("minimum", data) <= data and schema.get("exclusiveMinimum", data - 1) < data
    ):
        found.append(f"{path}: bound")
    if isinstance(data, list):
        found += [c for item in data for c in complaints(schema.get("items", {}), item, root, f"{path}[]")]
    if isinstance(data, dict):
        found += [f"{path}: no {key}" for key in schema.get("required", ()) if key not in data]
        for key, item in data.items():
            inner = [schema["properties"][key]] if key in schema.get("properties", {}) else []
            inner += [part for name, part in schema.get("patternProperties", {}).items() if re.search(name, key)]
            if not inner and schema.get("additionalProperties") is False:
                found.append(f"{path}: unknown {key}")
            elif not inner and isinstance(schema.get("additionalProperties"), dict):
                inner = [schema["additionalProperties"]]
            found += [c for part in inner for c in complaints(part, item, root, f"{path}.{key}")]
    return found


def shipped_schema(kind):
    """What editors read: the file, whatever release of pydantic is installed."""
    return json.loads((SCHEMAS / f"{kind}.schema.json").read_text())


@pytest.mark.parametrize("name", SHIPPED)
def test_the_schema_accepts_the_shipped_files(name):
    data = plain(parse((registry.package_folder() / f"{name}.yaml").read_text(), name)[0])
    schema = shipped_schema("device")
    assert complaints(schema, data, schema) == []


@pytest.mark.parametrize("name", libraries.names())
def test_the_schema_of_libraries_accepts_the_shipped_files(name):
    data = plain(parse((package_folder("libraries") / f"{name}.yaml").read_text(), name)[0])
    schema = shipped_schema("library")
    assert complaints(schema, data, schema) == []
    (group,) = list(data["kernels"].values())[:1]
    group["rows"]["wrong"] = {"tile": 64, "k_byte": 64, "warp": [1, 1]}
    told = complaints(schema, data, schema)
    for said in ("rows.wrong: no k_bytes", "rows.wrong: unknown k_byte", "rows.wrong.tile"):
        assert any(said in text for text in told), said


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"clock_ghz": 1}, "$: unknown clock_ghz"),
        ({"cores": 0}, "$.cores"),
        ({"cores": {"value": "two"}}, "$.cores"),
        ({"memories": {"L1": {}}}, "$.memories.L1: no capacity_bytes"),
        ({"hbm": {"evidence": "good"}}, "$.hbm"),
        ({"fractal": {"row": 3}}, "$.fractal: unknown row"),
        ({"sources": {"S1": 4}}, "$.sources.S1"),
    ],
)
def test_the_schema_refuses_what_the_loader_refuses(small, change, place):
    data = {**plain(parse(small, "text")[0])}
    schema = shipped_schema("device")
    assert complaints(schema, data, schema) == []
    assert any(place in complaint for complaint in complaints(schema, {**data, **change}, schema))


def test_the_schema_of_a_variant_asks_for_differences_only():
    schema = shipped_schema("device")
    data = {
        "extends": "ascend910a",
        "schema_version": 1,
        "name": "x",
        "hbm": None,
        "links": {"source": "s", "evidence": "paper", "GM_L1": {"bytes_per_cycle": 3}, "UB_L1": None},
    }
    assert complaints(schema, data, schema) == []
    assert complaints(schema, {**data, "hbm": {"bytes": 3}}, schema)
    assert complaints(schema, {"extends": "x", "name": "x"}, schema)


def test_the_schema_says_what_each_key_of_an_instruction_means():
    """The comments beside the fields: behind them, above them, and by the file's key."""
    comments = field_comments(InstructionModel)
    assert comments["n_last"] == "pattern: the largest N"
    assert comments["cores"].startswith("Cores that execute it together (None: one; 2: tcgen05's cta_group::2). Each")
    assert set(comments) == set(InstructionModel.model_fields)
    defs = json.loads(schema_text())["$defs"]
    assert defs["InstructionModel"]["properties"]["n_last"]["description"] == comments["n_last"]
    assert defs["LinkModelChange"]["properties"]["from"]["description"] == "memory that is read, or GM"
