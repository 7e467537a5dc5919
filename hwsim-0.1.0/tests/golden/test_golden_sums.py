"""`SHA256SUMS`: a folder that has one is complete and unchanged, or `golden verify` refuses it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hwsim.cli import main
from hwsim.errors import InputError
from hwsim.golden.sums import check_sums, read_sums, write_sums

HERE = Path(__file__).parent


@pytest.fixture
def folder(tmp_path):
    for name in ("self/a2.npz", "self/v100.npz", "h200_nan/fp64_nan.npz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(HERE / name, tmp_path / name)
    assert write_sums(tmp_path) == 3
    return tmp_path


def test_the_list_of_the_tree_is_right():
    check_sums([HERE])
    assert len(read_sums(HERE)) == len(list(HERE.rglob("*.npz")))


@pytest.mark.parametrize("name", ["hwsim/golden/patterns", "configs/libraries"])
def test_archives_beside_the_golden_sets_are_listed_too(name):
    folder = HERE.parents[1] / name
    check_sums([folder])
    assert len(read_sums(folder)) == len(list(folder.rglob("*.npz"))) > 0


def test_a_missing_set_fails(folder, capsys):
    (folder / "self/a2.npz").unlink()
    assert main(["golden", "verify", str(folder)]) == 2
    assert "SHA256SUMS: self/a2.npz: missing" in capsys.readouterr().err
    check_sums([folder / "h200_nan", folder / "self/v100.npz"])  # what is asked for is whole
    with pytest.raises(InputError, match=r"self/a2\.npz: missing"):
        check_sums([folder / "self"])


def test_a_changed_file_fails_though_its_arrays_are_right(folder):
    file = folder / "self/v100.npz"
    file.write_bytes(file.read_bytes() + b"\0")
    for path in (folder, file):
        with pytest.raises(InputError, match=r"self/v100\.npz: changed\. Restore"):
            check_sums([path])


def test_a_file_that_is_not_listed_fails(folder):
    shutil.copy(folder / "self/a2.npz", folder / "more.npz")
    with pytest.raises(InputError, match=r"more\.npz: not listed"):
        check_sums([folder])
    write_sums(folder)
    check_sums([folder])


@pytest.mark.parametrize("line", ["abc  x.npz", "0" * 64 + " x.npz", "0" * 64 + "  x.npz\n" + "1" * 64 + "  x.npz"])
def test_a_list_that_is_none_is_refused(folder, line):
    (folder / "SHA256SUMS").write_text(line + "\n")
    with pytest.raises(InputError, match="needs 64 hex digits, two spaces and a path, each path once"):
        check_sums([folder])


def test_without_a_list_nothing_is_checked(folder):
    (folder / "SHA256SUMS").unlink()
    (folder / "self/a2.npz").unlink()
    check_sums([folder])


def test_renewed_self_sets_are_listed(folder, capsys):
    (folder / "self/a2.npz").unlink()
    assert main(["golden", "self", "--device", "a2", "--out", str(folder / "self")]) == 0
    check_sums([folder])
    capsys.readouterr()


def test_the_command_says_what_it_wrote(folder, capsys, tmp_path_factory):
    assert main(["golden", "sums", str(folder), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {"schema": "hwsim.golden-sums/1", "file": str(folder / "SHA256SUMS"), "archives": 3}
    assert main(["golden", "sums", str(tmp_path_factory.mktemp("empty"))]) == 2
    assert "no folder with .npz files" in capsys.readouterr().err
