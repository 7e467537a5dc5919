"""Facts on calls of libraries as data (versions, sums, frameworks): each valid, sourced, and read where it is used."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

import hwsim
from hwsim import devices
from hwsim.datafiles.reading import record_of
from hwsim.datafiles.yaml_text import parse
from hwsim.errors import ConfigError
from hwsim.formats import FORMATS
from hwsim.gemm.summation import Chain, Reduction
from hwsim.libraries import facts
from hwsim.libraries.framework_model import Framework
from hwsim.libraries.sums_model import LibrarySums
from hwsim.libraries.version_model import LibraryVersion
from hwsim.library_calls.answer import Answer
from hwsim.library_calls.calls import ALLOWED_OUTPUTS, Call
from hwsim.library_calls.gemv import lanes_by_m
from hwsim.library_calls.orders import order_of
from hwsim.library_calls.shared_k import clusters_at_once, known
from hwsim.library_calls.versions import RULES, Version, version_on, versions

ROOT = Path(__file__).parents[2] / "configs"
VERSION, SUMS = ROOT / "libraries/cublas-13.1.version.yaml", ROOT / "libraries/cublas-13.1.sums.yaml"
FRAMEWORK = ROOT / "frameworks/pytorch-2.11.yaml"
MODELS = {VERSION: LibraryVersion, SUMS: LibrarySums, FRAMEWORK: Framework}


def read(path, old="", new=""):
    text = path.read_text(encoding="utf-8")
    assert old in text
    return record_of(*parse(text.replace(old, new, 1), path.name), MODELS[path], 1, "library")


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.name)
def test_every_fact_has_a_source_of_the_table(path) -> None:
    found = read(path)
    assert found.evidence and found.citations
    for at, about in found.evidence.items():
        assert about.source and about.evidence != "unknown", at


def test_files_are_named_as_what_they_are_of() -> None:
    for path, model in MODELS.items():
        record = read(path).record
        assert path.name.startswith(f"{record.framework if model is Framework else record.library}-{record.version}.")
    assert RULES in {(one.library, one.version) for one in versions()}
    assert facts.sums_of(*RULES).version == RULES[1]


def test_versions_name_shipped_chips_and_files() -> None:
    chips = {name for name, _ in devices.names()}
    for one in versions():
        assert set(one.devices) <= chips
        assert all(set(asked) <= set(one.devices) for asked in one.asked_on.values())
        for name in (one.path, one.layers, one.times, one.factors, one.shares):
            assert (ROOT / "libraries" / name).is_file()
        assert one.chips_instead("h100", "biased") == () != one.chips_instead("h200", "biased")


def test_a_version_of_which_nothing_is_known_has_no_answers() -> None:
    one = version_on("cublas", "12.9", "h100", 132)
    assert isinstance(one, Version) and (one.version, one.devices, one.layers) == ("12.9", {}, "")
    assert version_on(*RULES, "h100", 132) == versions()[0]
    assert version_on(*RULES, "h100", 114).devices == {}


def test_frameworks_name_formats_that_the_library_takes() -> None:
    found = facts.framework_of("pytorch", "2.11")
    assert set(found.outputs) == set(ALLOWED_OUTPUTS)
    for operand, said in found.outputs.items():
        assert {said.plain, *said.biased} <= set(ALLOWED_OUTPUTS[operand]) <= set(FORMATS)


@pytest.mark.parametrize(
    ("path", "old", "new", "said"),
    [
        (SUMS, "{options: [6]}", "{options: [6, 39]}", "custom options 39 stand in several rows"),
        (SUMS, "step: 32", "step: none", r"shared_k\.step"),
        (SUMS, "lanes: 24, element_bytes: 4", "lane: 24, element_bytes: 4", "unknown key 'lane'"),
        (SUMS, "source: TILES", "source: ELSEWHERE", "'ELSEWHERE' is not in the sources table"),
        (VERSION, "alone:", "alone: {grouped: [h100]}\n  other:", "grouped"),
        (VERSION, "differing: 19", "differing: -1", r"mixed\.differing"),
        (VERSION, "  source: ASKED\n", "", "missing source"),
        (FRAMEWORK, "mm: {function", "mm: {bias: true, function", "the last of calls has a condition"),
        (FRAMEWORK, "cublasGemmEx,", "cublasSgemm,", "cublasLtMatmul"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(path, old, new, said) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        read(path, old, new)
    assert re.search(rf"{re.escape(path.name)}:\d+:\d+", str(raised.value))


def lanes_of(sum_):
    """Lanes of a sum that take elements."""
    assert isinstance(sum_, Reduction)
    return sum(bool(part.ranges) for part in sum_.parts if isinstance(part, Chain))


@pytest.mark.parametrize(
    ("operand", "results", "lanes"),
    [
        ("fp32", 128, 32), ("fp32", 129, 24), ("fp32", 5000, 24), ("fp16", 5000, 32), ("fp64", 128, 32),
        ("fp64", 129, 24), ("fp64", 144, 24), ("fp64", 145, 32), ("fp64", 528, 24), ("fp64", 529, 32),
        ("fp64", 545, 32),
    ],
)  # fmt: skip
def test_lanes_of_the_warp_option_go_by_results_and_element(operand, results, lanes) -> None:
    """Recorded batches have them (test_vectors.py); these are the ends of the ranges."""
    call = Call(1, results, 4096, operand, operand, "rows", "rows")
    assert lanes_of(order_of(call, Answer(13, 0, 1, 0, 10)).schedule.sum) == lanes
    assert lanes_by_m(call, 1, 10) == (0 if operand == "fp16" else lanes)
    assert lanes_by_m(call, 1, 11) == 0


def test_an_option_that_no_row_has_is_not_known() -> None:
    call = Call(1, 64, 512, "fp32", "fp32", "rows", "rows")
    assert not order_of(call, Answer(13, 0, 1, 0, 3)).known
    assert order_of(call, Answer(13, 0, 1, 0, 39)).known


def test_clusters_between_those_that_were_counted_have_a_range() -> None:
    (chip,) = known().chips.values()
    assert clusters_at_once(chip, 8) == range(15, 16)
    assert clusters_at_once(chip, 9) == range(7, 16)  # at most two in each of eight GPCs, and no more than of eight
    assert clusters_at_once(replace_at_once(chip), 2) == range(1, 73)


def replace_at_once(chip):
    """The chip with clusters of one CTA counted alone: two of 18 SMs each."""
    return chip.model_copy(update={"at_once": ((1, 132),)})


def test_a_mixed_product_is_as_sure_as_its_answers_are_alike() -> None:
    call = {"m": 64, "n": 64, "k": 512, "output": "bf16", "b_layout": "columns"}
    library = hwsim.library("cublas", device="h100")
    one = library.choose(**call, format="e4m3")
    two = library.choose(**call, format="e4m3", format_b="e5m2")
    assert two.confidence == one.confidence * (1 - 19 / 25_004)
    assert replace(two, confidence=one.confidence, evidence=one.evidence) == one
