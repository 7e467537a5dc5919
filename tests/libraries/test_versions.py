"""Versions of a library: which one is taken, what a copied version file may claim, and which libraries are known."""

from pathlib import Path

import numpy as np
import pytest

import hwsim
from hwsim.cli.command import main
from hwsim.datafiles.reading import record_of
from hwsim.datafiles.yaml_text import parse
from hwsim.errors import UnsupportedError
from hwsim.gemm.record import LibraryId
from hwsim.libraries.cublas import versions as known
from hwsim.libraries.cublas.answers.sweeps import CallKind, write
from hwsim.libraries.model import facts
from hwsim.libraries.model.version_model import LibraryVersion

FILE = Path(__file__).parents[2] / "configs" / "libraries" / "cublas-13.1.version.yaml"
CALL = {"m": 40, "n": 64, "k": 512, "format": "fp16"}


def copied(*changes: tuple[str, str]):
    """The shipped version file under another name, as somebody who copies it writes it."""
    text = FILE.read_text(encoding="utf-8")
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    return record_of(*parse(text, "copy.version.yaml"), LibraryVersion, 1, "library")


NEWER = ('library: cublas\nversion: "13.1"', 'library: cublas\nversion: "13.2"')
OTHER = ("library: cublas\n", "library: hipblaslt\n")


@pytest.fixture
def files(monkeypatch):
    """Version files beside the shipped one, the newest first, as the folder would have them."""

    def beside(*changes: tuple[str, str]) -> None:
        found = (copied(*changes), *facts.versions())
        monkeypatch.setattr(facts, "versions", lambda: found)
        known.versions.cache_clear()

    yield beside
    monkeypatch.undo()
    known.versions.cache_clear()


def test_a_copied_version_is_nobodys_default(files) -> None:
    before = hwsim.library("cublas", device="h200").choose(**CALL)
    files(NEWER)
    assert [one.version for one in known.versions()] == ["13.2", "13.1"]
    library = hwsim.library("cublas", device="h200")
    assert library.id == LibraryId("cublas", "13.1") and library.choose(**CALL) == before


def test_a_copied_version_is_an_assumption(files) -> None:
    files(NEWER)
    assert not known.has_seen_rules(LibraryId("cublas", "13.2"), "h200", 132)
    assert known.has_seen_rules(LibraryId("cublas", "13.1"), "h200", 132)
    for sizes in ({}, {"n": 4096, "k": 4096}, {"bias": True}):  # by trees, by answers for a weight, with a bias
        call = {**CALL, "b_layout": "columns", "output": "fp16", **sizes}
        old, new = (hwsim.library("cublas", version=x, device="h200").choose(**call) for x in ("13.1", "13.2"))
        assert (old.kernel, old.split_k, old.schedule) == (new.kernel, new.split_k, new.schedule)
        assert old.seen and old.order_evidence in ("fitted", "microbenchmark")
        assert not new.seen and (new.evidence, new.order_evidence) == ("assumption", "assumption")


def test_a_run_with_a_copied_version_warns(files) -> None:
    files(NEWER)
    library = hwsim.library("cublas", device="h200", version="13.2")
    result = hwsim.run(np.ones((8, 512)), np.ones((512, 16)), format="fp16", device="h200", library=library)
    (told,) = [one["message"] for one in result.warnings if one["code"] == "library_order_assumed"]
    assert "cublas 13.2 on h200 by the rules of cublas 13.1 on h100, h200" in told
    assert {result.gemm.decided(x).evidence for x in ("kernel", "split_k", "order of summation", "times")} == {
        "assumption"
    }


def test_a_version_that_says_nothing_of_its_rules_has_none(files) -> None:
    text = FILE.read_text(encoding="utf-8")
    block = text[text.index("rules_seen:") : text.index("mixed: {")]
    files(NEWER, (block, ""))
    assert known.versions()[0].rules_version == "" and not known.versions()[0].has_rules
    assert known.rules_text() == "cublas 13.1 on h100, h200"
    assert hwsim.library("cublas", device="h200").id.version == "13.1"


def test_a_version_of_which_its_own_rules_were_found_is_the_default(files) -> None:
    files(NEWER, ('evidence: silicon\n  version: "13.1"', 'evidence: silicon\n  version: "13.2"'))
    assert hwsim.library("cublas", device="h200").id.version == "13.2"
    assert known.has_seen_rules(LibraryId("cublas", "13.2"), "h100", 132)


@pytest.mark.parametrize("name", ["hipblaslt", "nvjet"])
def test_a_library_by_another_name_has_no_rules(files, name) -> None:
    files((OTHER[0], f"library: {name}\n"))
    there = "there is batch-invariant, cublas, cudnn, cutlass, deepgemm, pytorch, and files of answers"
    with pytest.raises(UnsupportedError, match=rf"no library '{name}'; {there}"):
        hwsim.library(name, device="h100")
    with pytest.raises(UnsupportedError, match=f"no library '{name}'"):
        hwsim.run(**CALL, device="h100", library=name, exact=False)
    # and cuBLAS of a version that nobody asked is cuBLAS
    found = known.version_on("12.9", "a100", 108)
    assert (found.library, found.version, found.devices) == ("cublas", "12.9", {})


def test_answers_of_another_library_are_refused(files, tmp_path) -> None:
    files(OTHER)
    kind = CallKind("fp16", "fp32", False, None, "rows", "rows", 32 << 20, 7)
    entries = [(kind, ("h100",), {(64, 512): [(1, (66, 36, 1, 0, 0, 0, 0, 0))]})]
    path = tmp_path / "answers.npz"
    write(path, library="hipblaslt", version="1.0", source="test", cores={"h100": 132}, entries=entries)
    with pytest.raises(UnsupportedError, match="answers of library 'hipblaslt'; hwsim knows the kernels of cublas"):
        hwsim.library(path, device="h100")


def test_the_command_line_refuses_an_unknown_library(capsys) -> None:
    sizes = ["--m", "8", "--n", "8", "--k", "64", "--format", "fp16"]
    assert main(["run", "--device", "h200", "--library", "nvjet", *sizes, "--json"]) == 2
    told = capsys.readouterr()
    assert told.out == "" and "no library 'nvjet'; there is batch-invariant, cublas" in told.err


def test_texts_name_the_chips_of_the_file(files) -> None:
    assert known.chips_text(("h100", "h200")) == "an H100 and an H200"
    assert known.chips_text(("b200",)) == "a B200"
    assert known.chips_text(()) == ""
