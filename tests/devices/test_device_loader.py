"""Loading: every kind of mistake, provenance, variants, the hash."""

import pytest

from hwsim import devices
from hwsim.errors import ConfigError, InputError, UnsupportedError


def problems(write, text):
    with pytest.raises(ConfigError) as caught:
        devices.load(write("d.yaml", text))
    return caught.value.problems


@pytest.mark.parametrize(
    ("old", "new", "start", "words"),
    [
        ("cores: 2", "cores: 2\ncolour: red", "d.yaml:9:1: colour: unknown key 'colour'", ["cores", "clock_mhz"]),
        ("clock_mhz: 1000", "clock_ghz: 1", "d.yaml:9:1: clock_ghz: unknown key", ["did you mean 'clock_mhz'?"]),
        (
            "capacity_bytes: 1024",
            "capacity_kb: 1",
            "d.yaml:29:8: memories.L1.capacity_kb: unknown key",
            ["did you mean 'capacity_bytes'?"],
        ),
        (
            "capacity_bytes: 1024",
            "capacity_bytes: 0",
            "d.yaml:29:24: memories.L1.capacity_bytes: got 0",
            ["must be at least"],
        ),
        (
            "capacity_bytes: 1024",
            "capacity_bytes: 64 KB",
            "d.yaml:29:24: memories.L1.capacity_bytes: got the text '64 KB'",
            ["needs an integer"],
        ),
        ("cores: 2", "cores: 2\ncores: 3", "d.yaml:9:1: cores: the key 'cores' occurs twice, first at 8:1", []),
        ("    terms: 4", "\tterms: 4", "d.yaml:13:1: a tab in the indentation", ["use spaces"]),
        ("source: test\n", "", "d.yaml:7:1: cores: missing source", ["{value, source, evidence}"]),
        ("evidence: paper\n", "", "d.yaml:7:1: cores: missing evidence", []),
        ("evidence: paper", "evidence: good", "d.yaml:7:11: evidence: got 'good'", ["silicon", "unknown"]),
        (
            "a: fp16",
            "a: fp61",
            "d.yaml:21:8: instructions.mm.a: 'fp61' is not a known format",
            ["allowed: bf16", "did you mean 'fp16'?"],
        ),
        ("cores: 2", "cores: two", "d.yaml:8:8: cores: got the text 'two'; needs an integer", []),
        ("cores: 2", "cores: 2.5", "d.yaml:8:8: cores: got 2.5; needs an integer", []),
        ("cores: 2", "cores: true", "d.yaml:8:8: cores: got true; needs an integer", []),
        ("cores: 2", "cores: 02", "d.yaml:8:8: cores: got the text '02'", ["leading zeros"]),
        ("cores: 2", "cores: [2]", "d.yaml:8:8: cores: got a list", []),
        ("cores: 2\n", "", "d.yaml:1:1: cores: missing key", []),
        ("    terms: 4\n", "", "d.yaml:11:3: dot_units.unit.terms: missing key", []),
        ("model: exact", "model: exat", "d.yaml:12:12: dot_units.unit.model: got 'exat'", ["did you mean 'exact'?"]),
        ("    model: exact\n", "", "d.yaml:11:3: dot_units.unit.model: missing key", []),
        ("terms: 4", "terms: 4\n    rounding: RN", "d.yaml:14:15: dot_units.unit.rounding: got 'RN'", ["RNE", "RD"]),
        (
            "terms: 4",
            "terms: 4\n    fraction_bits: 4",
            "d.yaml:14:5: dot_units.unit.fraction_bits: unknown key",
            ["model, rounding, specials, terms"],
        ),
        (
            "unit: unit",
            "unit: units",
            "d.yaml:17:11: instructions.mm.unit: 'units' is not one of dot_units",
            ["did you mean 'unit'?"],
        ),
        ("to: L1", "to: L7", "d.yaml:31:36: links.GM_L1.to: 'L7' is not one of memories", ["GM, L1"]),
        ("{engine: M, from", "{engine: N, from", "d.yaml:31:19: links.GM_L1.engine: 'N' is not one of engines", []),
        ("    engine: M\n", "    engine: N\n", "d.yaml:16:13: instructions.mm.engine: 'N' is not one of engines", []),
        ("[L1, L1, L1]", "[L1, L1]", "d.yaml:25:15: instructions.mm.memories: too few entries", []),
        ("[L1, L1, L1]", "[L1, L1, L2]", "d.yaml:25:24: instructions.mm.memories.2: 'L2' is not one of memories", []),
        ("native: {fp16: mm}", "native: {fp16: mn}", "d.yaml:27:16: native.fp16: 'mn' is not one of instructions", []),
        (
            "default_format: fp16",
            "default_format: bf16",
            "d.yaml:5:17: default_format: 'bf16' is not one of native",
            [],
        ),
        ("schema_version: 1", "schema_version: 2", "d.yaml:1:17: schema_version: got 2; hwsim", ["reads version 1"]),
        ("schema_version: 1", "schema_version: true", "d.yaml:1:17: schema_version: got True", []),
        ("schema_version: 1\n", "", "d.yaml:1:1: schema_version: missing key", []),
        (
            "value: 64, s",
            "value: 64, span: [65, 70], s",
            "d.yaml:31:75: links.GM_L1.bytes_per_cycle.span: [65, 70] does not hold",
            [],
        ),
        ("value: 64, s", "value: 64, span: [6, 63], s", "d.yaml:31:75: links.GM_L1.bytes_per_cycle.span: [6, 63]", []),
        ("value: 64, s", "value: 64, span: [70, 6], s", "d.yaml:31:75: links.GM_L1.bytes_per_cycle.span: needs", []),
        (
            "value: 64, s",
            "value: 64, notes: x, s",
            "d.yaml:31:69: links.GM_L1.bytes_per_cycle.notes: unknown key 'notes' beside value",
            ["did you mean 'note'?"],
        ),
        ("source: other", "source: 7", "d.yaml:31:77: links.GM_L1.bytes_per_cycle.source: got 7", []),
        (
            "title: a device for tests",
            "title: a device for tests\nsources: {S1: a paper}",
            "d.yaml:7:9: source: 'test' is not in the sources table",
            ["known: S1"],
        ),
    ],
)
def test_one_mistake_one_clear_problem(write, small, old, new, start, words):
    assert small.count(old) == 1, old
    found = problems(write, small.replace(old, new))
    assert found[0].startswith(start), found
    assert all(word in found[0] for word in words), found[0]


@pytest.mark.parametrize("new", ["clock_ghz: 1", "clock_mhz: 0"])
def test_one_mistake_is_told_once(write, small, new):
    assert len(problems(write, small.replace("clock_mhz: 1000", new))) == 1


def test_all_mistakes_at_once_by_line(write, small):
    text = (
        small.replace("capacity_bytes: 1024", "capacity_bytes: 0")
        .replace("clock_mhz", "clock_ghz")
        .replace("a: fp16", "a: fp61")
        .replace("to: L1", "to: L7")
    )
    assert [p.split(" ")[0] for p in problems(write, text)] == [
        "d.yaml:9:1:",
        "d.yaml:21:8:",
        "d.yaml:29:24:",
        "d.yaml:31:36:",
    ]


def test_a_list_or_an_empty_file_is_no_device(write):
    assert problems(write, "- 1\n") == ["d.yaml:1:1: a device file is a mapping of keys to values"]
    assert problems(write, "# nothing\n") == ["d.yaml:1:1: the file is empty"]


def test_a_mapping_in_place_of_a_file():
    with pytest.raises(ConfigError, match=r"<mapping>: cores: got 0; must be at least"):
        devices.load({"schema_version": 1, "cores": 0, "source": "s", "evidence": "paper"})
    with pytest.raises(InputError, match="got int"):
        devices.load(910)


def test_provenance_comes_from_the_number_or_the_nearest_block(write, small):
    device = devices.load(write("d.yaml", small))
    assert (device.evidence["cores"].source, device.evidence["cores"].evidence) == ("test", "paper")
    link = device.evidence["links.GM_L1.bytes_per_cycle"]
    assert (link.source, link.evidence) == ("other", "assumption")
    assert device.evidence["dot_units.unit.model"].source == "test"
    assert device.evidence["dot_units.unit.specials.zero"].source == "test"  # a block speaks of the whole unit
    default = device.evidence["links.GM_L1.startup_cycles"]  # but not of the schema's other defaults
    assert default.evidence == "assumption"
    assert "default" in default.source


def test_weakest_evidence(write, small):
    device = devices.load(write("d.yaml", small))
    assert devices.weakest(device, "cores", "clock_mhz") == "paper"
    assert devices.weakest(device, "cores", "links") == "assumption"
    assert devices.weakest(device) == "assumption"
    assert devices.numerics_evidence(device, "mm") == "paper"
    assert devices.timing_evidence(device, "mm") == "assumption"
    with pytest.raises(KeyError):
        devices.weakest(device, "core")  # a part of a name is no prefix
    with pytest.raises(UnsupportedError, match="did you mean 'mm'"):
        devices.numerics_evidence(device, "mmm")


def test_the_other_units_do_not_weaken_the_numerics(write, small):
    other = "  other: {model: fma_chain, source: x, evidence: unknown}\n"
    text = small.replace("instructions:\n", other + "instructions:\n")
    device = devices.load(write("d.yaml", text))
    assert devices.weakest(device, "dot_units") == "unknown"
    assert devices.numerics_evidence(device, "mm") == "paper"
    assert devices.timing_evidence(device, "mm") == "assumption"


@pytest.mark.parametrize(
    ("unit", "said"),
    [
        ("{model: fma_chain, result_format: tf32}", "unknown key 'result_format'; .*; model: fused has it"),
        ("{model: fused, terms: 4, fraction_bits: 24, floor_exponent: -126, result_format: e8m10}", "e8m10 is 'tf32'"),
        (
            "{model: fused, terms: 4, fraction_bits: 24, floor_exponent: -126, result_format: e8m16}",
            "formats with 8 exponent bits: fp32 has 23, tf32 has 10, hf32 has 11, e8m13 has 13, bf16 has 7",
        ),
    ],
)
def test_a_unit_that_is_not_known_names_what_there_is(unit, said, write, small):
    with pytest.raises(ConfigError, match=said):
        devices.load(write("d.yaml", small.replace("instructions:\n", f"  other: {unit}\ninstructions:\n")))


VARIANT = """\
schema_version: 1
name: fast
extends: ./d.yaml
clock_mhz: {value: 2000, source: mine, evidence: silicon}
links:
  GM_L1: null
memories:
  source: mine
  evidence: datasheet
  L2: {capacity_bytes: 5}
"""


def test_a_variant_changes_what_it_says(write, small):
    write("sub/d.yaml", small)
    device = devices.load(write("sub/fast.yaml", VARIANT))
    assert (device.name, device.title, device.clock_mhz, device.cores) == ("fast", "a device for tests", 2000.0, 2)
    assert device.links == {}
    assert {name: memory.capacity_bytes for name, memory in device.memories.items()} == {"L1": 1024, "L2": 5}
    assert device.evidence["clock_mhz"].evidence == "silicon"
    assert device.evidence["memories.L1.capacity_bytes"].source == "test"
    assert device.evidence["memories.L2.capacity_bytes"].source == "mine"


def test_a_variant_by_name(write, small):
    write("configs/devices/d.yaml", small)
    write("configs/devices/fast.yaml", VARIANT.replace("./d.yaml", "d"))
    assert devices.load("fast").clock_mhz == 2000


def test_the_base_does_not_vouch_for_a_changed_number(write, small):
    """Where the base has no source for all its numbers, a variant says its own; else they are at best assumptions."""
    with pytest.raises(ConfigError, match=r"fast.yaml:5:1: clock_mhz: missing source and evidence"):
        devices.load(write("fast.yaml", "schema_version: 1\nname: fast\nextends: h200\n\nclock_mhz: 5\n"))
    write("d.yaml", small)
    fast = devices.load(write("fast.yaml", "schema_version: 1\nname: fast\nextends: ./d.yaml\nclock_mhz: 2000\n"))
    assert (
        fast.evidence["clock_mhz"].source == "changed from: test"
        and fast.evidence["clock_mhz"].evidence == "assumption"
    )
    assert fast.evidence["cores"].source == "test" and fast.evidence["cores"].evidence == "paper"
    again = "schema_version: 1\nname: faster\nextends: ./fast.yaml\nclock_mhz: 3000\n"
    assert devices.load(write("faster.yaml", again)).evidence["clock_mhz"].source == "changed from: test"


def test_mistakes_in_base_and_variant_are_told_together(write, small):
    write("d.yaml", small.replace("cores: 2", "cores: 0"))
    with pytest.raises(ConfigError) as caught:
        devices.load(write("fast.yaml", VARIANT.replace("2000", "-1")))
    assert [p.split(" ")[0] for p in caught.value.problems] == ["d.yaml:8:8:", "fast.yaml:4:20:"]


def test_a_variant_of_a_variant(write, small):
    write("d.yaml", small)
    write("one.yaml", VARIANT)
    head = "schema_version: 1\nname: two\nextends: ./one.yaml\n"
    two = head + "inherited: {source: S, evidence: assumption}\nsources: {S: s}\n"
    first, second = devices.load(write("one.yaml", VARIANT)), devices.load(write("two.yaml", two))
    assert second.name == "two" and second.clock_mhz == first.clock_mhz == 2000
    assert second.evidence["clock_mhz"].evidence == "assumption" and second.cores == first.cores
    with pytest.raises(ConfigError, match="more than 8 devices that extend one another"):
        for index in range(10):
            base = "./d.yaml" if index == 0 else f"./v{index - 1}.yaml"
            devices.load(write(f"v{index}.yaml", two.replace("./one.yaml", base)))


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ("./circle.yaml", "a circle: fast.yaml extends circle.yaml extends fast.yaml"),
        ("./missing.yaml", "cannot read"),
        ("nobody", "no device 'nobody'"),
        ("3", "needs the name"),
    ],
)
def test_a_base_that_cannot_be_had_is_the_only_complaint(write, small, base, words):
    write("d.yaml", small)
    write("circle.yaml", VARIANT.replace("./d.yaml", "./fast.yaml"))
    text = f"schema_version: 1\nname: fast\nextends: {base}\n"
    with pytest.raises(ConfigError) as caught:
        devices.load(write("fast.yaml", text))
    assert len(caught.value.problems) == 1
    assert words in caught.value.problems[0]


def test_a_variant_needs_its_own_name(write, small):
    write("d.yaml", small)
    with pytest.raises(ConfigError, match="name: missing key; a variant says its own"):
        devices.load(write("fast.yaml", "schema_version: 1\nextends: ./d.yaml\n"))


def test_the_hash_is_of_the_content(write, small):
    base = devices.load(write("d.yaml", small))
    lines = small.splitlines(keepends=True)
    same = [
        "# a comment\n" + small,
        "".join(lines[:7] + lines[8:] + lines[7:8]),  # another order
        small.replace("source: other, evidence: assumption", "source: third, evidence: silicon, note: sure"),
        small.replace("clock_mhz: 1000", "clock_mhz: 1e3"),
        small.replace("{queue_depth: 32}", "{queue_depth: 32, issue_cycles: 1.0}"),  # a default written out
    ]
    assert {devices.load(write("e.yaml", text)).sha256 for text in same} == {base.sha256}
    assert devices.load(write("e.yaml", small.replace("cores: 2", "cores: 3"))).sha256 != base.sha256
    assert len(base.sha256) == 64


def test_the_expanded_form_is_the_same_device(write, small):
    write("d.yaml", small)
    device = devices.load(write("fast.yaml", VARIANT))
    again = devices.load(devices.expanded(device))
    assert again == device
    assert again.sha256 == device.sha256
    assert again.evidence == device.evidence


def test_a_loaded_device_passes_through(write, small):
    device = devices.load(write("d.yaml", small))
    assert devices.load(device) is device


FITTED = "clock_mhz: {{value: 1000, source: s, {}}}"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("evidence: fitted", "clock_mhz: missing fitted_to"),
        ("evidence: fitted, fitted_to: 3", "clock_mhz.fitted_to: got 3; needs text"),
        ("evidence: microbenchmark, fitted_to: a GEMM", "clock_mhz.fitted_to: beside evidence 'microbenchmark'"),
    ],
)
def test_a_fitted_number_names_what_it_was_fitted_to(write, small, said, words):
    found = problems(write, small.replace("clock_mhz: 1000", FITTED.format(said)))
    assert len(found) == 1 and words in found[0]


def test_fitted_stands_between_model_and_assumption(write, small):
    text = small.replace("clock_mhz: 1000", FITTED.format("evidence: fitted, fitted_to: one GEMM"))
    text = text.replace("memories:\n", "memories:\n  evidence: fitted\n  fitted_to: another\n")
    device = devices.load(write("d.yaml", text))
    about = device.evidence["clock_mhz"]
    assert (about.evidence, about.fitted_to) == ("fitted", "one GEMM")
    assert device.evidence["memories.L1.capacity_bytes"].fitted_to == "another"
    assert devices.weakest(device, "clock_mhz", "cores") == "fitted"  # cores: paper
    assert devices.weakest(device, "clock_mhz", "links.GM_L1.startup_cycles") == "assumption"
    assert devices.load(devices.expanded(device)).evidence == device.evidence


def test_evidence_of_its_own_is_not_fitted_to_what_the_block_was(write, small):
    text = small.replace("memories:\n", "memories:\n  evidence: fitted\n  fitted_to: a GEMM\n")
    text = text.replace("capacity_bytes: 1024", "capacity_bytes: {value: 1024, evidence: paper}")
    about = devices.load(write("d.yaml", text)).evidence["memories.L1.capacity_bytes"]
    assert (about.evidence, about.fitted_to) == ("paper", "")


def test_a_whole_base_cannot_be_fitted():
    inherited = {"source": "DS", "evidence": "fitted"}
    with pytest.raises(ConfigError, match=r"inherited.evidence: got 'fitted'; that is said of single numbers"):
        devices.load({"schema_version": 1, "name": "mine", "extends": "a100", "inherited": inherited})


def test_text_with_a_source_of_its_own_has_a_level(write, small):
    text = small.replace("unit: unit", "unit: {value: unit, source: s, evidence: unknown}")
    device = devices.load(write("d.yaml", text))
    assert device.matrix_instructions["mm"].unit == "unit"
    assert device.evidence["instructions.mm.unit"].evidence == "unknown"
    assert "instructions.mm.engine" not in device.evidence
    assert devices.numerics_evidence(device, "mm") == "unknown"
    assert devices.timing_evidence(device, "mm") == "assumption"
    assert devices.load(devices.expanded(device)).evidence == device.evidence


@pytest.mark.parametrize("span", ["[64, 64]", "[60, 64]", "[64, 70]"])
def test_a_span_may_end_at_the_value(write, small, span):
    device = devices.load(write("d.yaml", small.replace("value: 64, s", f"value: 64, span: {span}, s")))
    assert list(device.evidence["links.GM_L1.bytes_per_cycle"].span) == [float(x) for x in span[1:-1].split(",")]
