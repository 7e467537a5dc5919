"""Facts on calls of libraries as data (versions, sums, frameworks): each valid, sourced, and read where it is used."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

import hwsim
from hwsim import devices
from hwsim.datafiles.reading import record_of
from hwsim.datafiles.yaml_text import parse
from hwsim.errors import ConfigError, UnsupportedError
from hwsim.formats import FORMATS
from hwsim.gemm.summation import Chain, Reduction
from hwsim.libraries.cublas.answer import Answer
from hwsim.libraries.cublas.calls import CublasGemm, check_mixed, checked_call, operand_of
from hwsim.libraries.cublas.orders.families import usual_tables
from hwsim.libraries.cublas.orders.raster import grid_of
from hwsim.libraries.cublas.orders.shared_k import clusters_at_once
from hwsim.libraries.cublas.versions import Version, calls_taken, version_on, versions
from hwsim.libraries.gemm_call import GemmCall
from hwsim.libraries.model import facts
from hwsim.libraries.model.framework_model import Framework
from hwsim.libraries.model.sums_model import LibrarySums
from hwsim.libraries.model.version_model import LibraryVersion, TakenModel

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
    for one in versions():
        sums = facts.sums_in(one.sums)
        assert (sums.library, sums.version) == (one.library, one.rules_version)


def test_versions_name_shipped_chips_and_files() -> None:
    chips = {name for name, _ in devices.names()}
    for one in versions():
        assert set(one.devices) <= chips
        assert all(set(asked) <= set(one.devices) for asked in one.asked_on.values())
        for name in (one.sums, one.path, one.layers, one.times, one.factors, one.shares):
            assert (ROOT / "libraries" / name).is_file()
        assert one.chips_instead("h100", "biased") == () != one.chips_instead("h200", "biased")


def test_a_version_of_which_nothing_is_known_has_no_answers() -> None:
    one = version_on("12.9", "h100", 132)
    assert isinstance(one, Version) and (one.version, one.devices, one.layers) == ("12.9", {}, "")
    assert version_on("13.1", "h100", 132) == versions()[0]
    assert version_on("13.1", "h100", 114).devices == {}


def test_frameworks_name_formats_that_the_library_takes() -> None:
    found = facts.framework_of("pytorch", "2.11")
    taken = calls_taken().outputs
    assert set(found.outputs) == set(taken)
    for operand, said in found.outputs.items():
        assert {said.plain, *said.biased} <= set(taken[operand]) <= set(FORMATS)


@pytest.mark.parametrize(
    ("path", "old", "new", "said"),
    [
        (SUMS, "{options: [6]}", "{options: [6, 39]}", "custom options 39 stand in several rows"),
        (SUMS, "algorithms: [41, 42]", "algorithms: [41, 43]", "algorithms 43 stand in several families"),
        (SUMS, "rule: whole_tiles", "rule: halves", r"families\.nvjet\.rule"),
        (SUMS, "merges: any", "merges: all", r"families\.gemv\.merges"),
        (SUMS, "step: 32", "step: none", r"shared_k\.step"),
        (SUMS, "lanes: 24, element_bytes: 4", "lane: 24, element_bytes: 4", "unknown key 'lane'"),
        (SUMS, "source: TILES", "source: ELSEWHERE", "'ELSEWHERE' is not in the sources table"),
        (VERSION, "alone:", "alone: {grouped: [h100]}\n  other:", "grouped"),
        (VERSION, "differing: 19", "differing: -1", r"mixed\.differing"),
        (VERSION, "  source: ASKED\n", "", "missing source"),
        (VERSION, "k_major: [e4m3, int8]", "k_major: [e4m3, int4]", "int4: no results of such operands"),
        (VERSION, "like: e4m3", "like: e5m2", "e5m2: no results of such operands"),
        (VERSION, "[[4, 0.9947], [10, 0.9886]]", "[[10, 0.9886], [4, 0.9947]]", "tiles of one are not in ascending"),
        (VERSION, "both: 0.9997", "both: 1.9997", r"neighbours\.right\.both"),
        (VERSION, "accumulate: promoted", "accumulate: exact", r"taken\.whole_rows\.e4m3_promoted\.accumulate"),
        (SUMS, "narrow: {value: [8, 16]", "narrow: {value: [8]", r"shared_k\.narrow"),
        (FRAMEWORK, "mm: {function", "mm: {bias: true, function", "the last of calls has a condition"),
        (FRAMEWORK, "cublasGemmEx,", "cublasSgemm,", "cublasLtMatmul"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(path, old, new, said) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        read(path, old, new)
    assert re.search(rf"{re.escape(path.name)}:\d+:\d+", str(raised.value))


#: A library that takes one kind of rows in each way, with other numbers than the shipped file's.
TAKEN = TakenModel.model_validate(
    {
        "outputs": {"fp16": ("fp16",), "e4m3": ("bf16", "fp32"), "int8": ("int32",)},
        "k_major": ("e4m3",),
        "pairs": {"both": {"a": "e5m2", "b": "e4m3", "like": "e4m3", "row_bytes": 64}},
        "whole_rows": {
            "wide": {"operand": "e4m3", "output": "fp32", "row_bytes": 8},
            "promoted": {"operand": "e4m3", "accumulate": "promoted", "row_bytes": 32},
            "int8": {"operand": "int8", "row_bytes": 2, "of_result": False},
            "half": {"operand": "fp16", "row_bytes": 4, "of_result": False},
        },
    }
)


def asked_of(m, n, k, format, output, accumulate, a_layout, b_layout):
    return GemmCall(
        m=m, n=n, k=k, format=format, output=output, accumulate=accumulate, a_layout=a_layout, b_layout=b_layout
    )


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ((8, 5, 9, "fp16", "fp32", None, "rows", "rows"), "fp16 operands give fp16 in cuBLAS; got fp32"),
        ((8, 5, 9, "bf16", None, None, "rows", "rows"), "format 'bf16': not one of fp16, e4m3, int8"),
        ((8, 5, 9, "fp16", "fp16", None, "rows", "rows"), "K must be a multiple of 2"),  # 18 bytes are no whole 4
        ((8, 5, 10, "fp16", "fp16", None, "rows", "rows"), ""),
        ((8, 5, 9, "int8", None, None, "rows", "rows"), "K must be a multiple of 2"),
        ((8, 5, 10, "int8", None, None, "rows", "rows"), ""),
        ((8, 5, 9, "e4m3", "bf16", None, "rows", "rows"), "8-bit operands are K-major"),
        ((8, 5, 9, "e4m3", "bf16", None, "rows", "columns"), ""),  # no rule is for it
        ((8, 5, 9, "e4m3", "bf16", "fast", "rows", "columns"), ""),
        ((8, 16, 9, "e4m3", "bf16", "promoted", "rows", "columns"), "rows of A, B and C must be whole 32 bytes"),
        ((8, 5, 32, "e4m3", "bf16", "promoted", "rows", "columns"), "rows of A, B and C must be whole 32 bytes"),
        ((8, 16, 32, "e4m3", "bf16", "promoted", "rows", "columns"), ""),
        ((8, 5, 8, "e4m3", "fp32", "promoted", "rows", "columns"), "whole 8 bytes"),  # the first rule that fits
        ((8, 2, 8, "e4m3", "fp32", "promoted", "rows", "columns"), ""),
    ],
)
def test_what_a_library_takes_is_what_its_file_says(call, said) -> None:
    if not said:
        assert checked_call(TAKEN, asked_of(*call)).operand == call[3]
        return
    with pytest.raises(UnsupportedError, match=said):
        checked_call(TAKEN, asked_of(*call))


def test_products_of_two_formats_are_those_of_the_file() -> None:
    assert (operand_of(TAKEN, "e5m2", "e4m3"), operand_of(TAKEN, "fp16", None)) == ("e4m3", "fp16")
    for pair in (("e4m3", "e5m2"), ("e5m2", None), ("fp16", "e4m3")):
        with pytest.raises(UnsupportedError, match="of two formats it does e5m2 by e4m3"):
            operand_of(TAKEN, *pair)
    call = CublasGemm(8, 32, 64, "e4m3", "bf16", "rows", "columns")
    check_mixed(TAKEN, call, "e5m2", "e4m3")
    with pytest.raises(UnsupportedError, match="e5m2 by e4m3, 8 x 16 x 64: rows of A, B and C must be whole 64 bytes"):
        check_mixed(TAKEN, call._replace(n=16), "e5m2", "e4m3")


@pytest.mark.parametrize(("m", "n", "by_rows"), [(8, 64, False), (9, 16, False), (10, 20, True)])
def test_tiles_along_a_narrow_c_are_walked_by_columns(m, n, by_rows) -> None:
    """Wide clusters (2, 1) of tiles 128 x 64; m, n: tiles of C."""
    narrow = usual_tables().shared_k.table.narrow
    grid = grid_of(64 * m, 128 * n, (128, 64), (2, 1), narrow)
    assert grid.is_by_rows != by_rows  # blocks are of rows where columns are walked
    assert grid_of(64 * m, 128 * n, (128, 64), (1, 2), narrow).is_by_rows


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
    call = CublasGemm(1, results, 4096, operand, operand, "rows", "rows")
    assert lanes_of(usual_tables().order_of(call, Answer(13, 0, 1, 0, 10)).schedule.sum) == lanes
    assert usual_tables().families[13].order_of_m(call, 1, 10) == (0 if operand == "fp16" else lanes)
    assert usual_tables().families[13].order_of_m(call, 1, 11) == 0


def test_an_option_that_no_row_has_is_not_known() -> None:
    call = CublasGemm(1, 64, 512, "fp32", "fp32", "rows", "rows")
    assert not usual_tables().order_of(call, Answer(13, 0, 1, 0, 3)).known
    assert usual_tables().order_of(call, Answer(13, 0, 1, 0, 39)).known


def test_clusters_between_those_that_were_counted_have_a_range() -> None:
    (chip,) = usual_tables().shared_k.table.chips.values()
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
