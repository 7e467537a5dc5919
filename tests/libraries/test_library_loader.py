"""Library files: what a right one gives, and one clear problem with its place for each thing that is wrong."""

import copy
import textwrap
from pathlib import Path

import pytest

from hwsim.errors import ConfigError, InputError, UnsupportedError
from hwsim.libraries import model as libraries

SMALL = textwrap.dedent("""\
    schema_version: 1
    name: small
    title: A library
    families: [sm80]
    sources:
      S: "somewhere"
    kernels:
      first:
        source: "S; seen"
        evidence: datasheet
        engine: matrix
        bits: [16]
        rows:
          128x128: {tile: [128, 128], k_bytes: 64, warp: [64, 64]}
          64x64: {tile: [64, 64], k_bytes: 64, warp: [32, 32], max_waves: {value: 2, evidence: fitted, fitted_to: time}}
    split_k:
      source: S
      evidence: assumption
      counts: [1, 2, 4]
      min_slice: 64
      advise_below: 0.8
    observations:
      chip:
        source: S
        evidence: silicon
        slice_multiple: 32
        split_k_instructions: {tf32: some.instruction}
    """)


@pytest.fixture
def load(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write_and_load(text):
        Path("lib.yaml").write_text(text)
        return libraries.load(Path("lib.yaml"))

    return write_and_load


def test_rows_keep_their_order_and_say_where_they_come_from(load):
    found = load(SMALL)
    group = found.kernels["first"]
    assert list(group.rows) == ["128x128", "64x64"] and group.rows["64x64"].tile == (64, 64)
    assert group.rows["128x128"].stages is None and group.rows["128x128"].max_waves is None
    assert found.evidence["kernels.first.rows.128x128.tile"].source == "S; seen"
    assert found.level("kernels.first.rows.128x128") == "datasheet"
    assert found.level("kernels.first.rows.64x64") == "fitted"
    assert found.evidence["kernels.first.rows.64x64.max_waves"].fitted_to == "time"
    assert found.level("observations.chip.slice_multiple") == "silicon"
    assert found.citations == {"S": "somewhere"}
    with pytest.raises(KeyError, match=r"rows\.64$|rows\.64"):
        found.level("kernels.first.rows.64")


def test_the_hash_is_of_what_the_file_says_and_not_of_its_sources(load):
    plain = load(SMALL).sha256
    assert load(SMALL.replace("somewhere", "elsewhere")).sha256 == plain
    assert load(SMALL.replace("slice_multiple: 32", "slice_multiple: 16")).sha256 != plain


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "k_bytes: 64, warp: [64",
            "kbytes: 64, warp: [64",
            "14:35: kernels.first.rows.128x128.kbytes: unknown key 'kbytes'; allowed: ",
        ),
        ('    source: "S; seen"\n', "", "11:5: kernels.first.bits: missing source"),
        (
            "evidence: datasheet",
            "evidence: certain",
            "10:15: kernels.first.evidence: got 'certain'; allowed: silicon",
        ),
        (
            "tile: [128, 128]",
            "tile: [128, 96]",
            "14:16: kernels.first.rows.128x128: tile 128x96 is not made of whole warps of 64x64",
        ),
        (", fitted_to: time", "", "15:60: kernels.first.rows.64x64.max_waves: missing fitted_to"),
        (
            "engine: matrix",
            "engine: tensor",
            "11:13: kernels.first.engine: got 'tensor'; allowed: matrix, registers, lanes",
        ),
        ("tile: [64, 64]", "tile: [64, 0]", "15:26: kernels.first.rows.64x64.tile.1: got 0; must be more than 0"),
        ("counts: [1, 2, 4]", "counts: [1, 4, 2]", "17:3: split_k: counts ascend from 1, each once"),
        (
            "{tf32: some",
            "{tf23: some",
            "27:28: observations.chip.split_k_instructions.tf23: 'tf23' is not a known format; allowed: ",
        ),
        ('source: "S; seen"', 'source: "T; seen"', "9:13: kernels.first.source: 'T' is not in the sources table"),
        ("schema_version: 1", "schema_version: 2", "1:17: schema_version: got 2; hwsim "),
        ("title: A library\n", "", "1:1: title: missing key"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(load, old, new, problem):
    assert SMALL.count(old) >= 1
    with pytest.raises(ConfigError) as caught:
        load(SMALL.replace(old, new, 1))
    assert caught.value.kind == "library"
    assert f"lib.yaml:{problem}" in str(caught.value)
    allowed = 8 if "source" in old else 1  # without its source each number of a block is told
    assert len(caught.value.problems) <= allowed


def test_every_problem_is_told_at_once(load):
    text = SMALL.replace("counts: [1, 2, 4]", "counts: [2]").replace("engine: matrix", "engine: tensor")
    with pytest.raises(ConfigError) as caught:
        load(text.replace("warp: [64, 64]", "warp: [48, 64]"))
    assert [p.split(" ")[1] for p in caught.value.problems] == [
        "kernels.first.engine:",
        "kernels.first.rows.128x128:",
        "split_k:",
    ]


def test_text_that_is_no_mapping_is_no_library(load):
    with pytest.raises(ConfigError, match="a library file is a mapping"):
        load("- 1\n")
    with pytest.raises(ConfigError, match="not readable as YAML"):
        load("name: [\n")
    with pytest.raises(InputError, match=r"cannot read the library file absent\.yaml"):
        libraries.load(Path("absent.yaml"))


def test_unknown_names_are_refused_with_what_there_is():
    with pytest.raises(UnsupportedError, match=r"no library 'cublas-31'; known: .*; did you mean 'cublas-13'\?"):
        libraries.load("cublas-31")


def test_a_mapping_is_a_library_too(load):
    from hwsim.datafiles.yaml_text import parse, plain

    data = plain(parse(SMALL, "x")[0])
    kept = copy.deepcopy(data)
    assert libraries.load(data) == load(SMALL) and data == kept
    assert libraries.load("cublas-13") is libraries.load("cublas-13")
