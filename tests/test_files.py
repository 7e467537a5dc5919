"""The one writer: a file appears whole or not at all, under any name that the file system allows."""

from __future__ import annotations

import ast
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from full_disk import left, limited

from hwsim.errors import InputError
from hwsim.golden.format import GoldenSet, Meta, write_sets
from hwsim.host.files import check_outputs, check_writable, whole_file, write_text

ROOT = Path(__file__).parents[1]


def test_names_as_long_as_the_file_system_allows(tmp_path: Path) -> None:
    for name in ("\u00e9" * 127, "x" * 255):
        write_text(tmp_path / name, "text \u00b5")
        assert (tmp_path / name).read_text(encoding="utf-8") == "text \u00b5"
    with pytest.raises(InputError, match=r"cannot write .*: File name too long"):
        write_text(tmp_path / ("x" * 256), "text")
    with pytest.raises(InputError, match="cannot write"):
        check_writable(tmp_path / "a\0b")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(InputError, match="cannot write"):
        write_text(tmp_path / "circle", "text")


def test_many_threads_may_write_one_file(tmp_path: Path) -> None:
    texts = [str(i) * 50_000 for i in range(10)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda text: write_text(tmp_path / "x", text), texts * 8))
    assert (tmp_path / "x").read_text() in texts and left(tmp_path) == ["x"]


def test_nested_writers_of_one_file_do_not_meet(tmp_path: Path) -> None:
    with whole_file(tmp_path / "x") as outer:
        outer.write(b"outer")
        write_text(tmp_path / "x", "inner")
    assert (tmp_path / "x").read_text() == "outer" and left(tmp_path) == ["x"]


def test_a_block_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    write_text(tmp_path / "x", "before")
    with pytest.raises(KeyError), whole_file(tmp_path / "x") as file:
        file.write(b"half")
        raise KeyError("x")
    assert (tmp_path / "x").read_text() == "before" and left(tmp_path) == ["x"]


def test_permissions_are_the_umasks_or_the_old_files(tmp_path: Path) -> None:
    umask = os.umask(0o027)
    try:
        write_text(tmp_path / "new", "")
    finally:
        os.umask(umask)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640
    (tmp_path / "new").chmod(0o604)
    write_text(tmp_path / "new", "x")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o604


def test_two_outputs_of_one_command_are_two_files(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    check_outputs({"--out": one, "--trace": other, "--csv": None})
    with pytest.raises(InputError, match="--out and --trace both write"):
        check_outputs({"--out": one, "--trace": tmp_path / "." / "one"})
    write_text(one, "")
    other.hardlink_to(one)
    (tmp_path / "link").symlink_to(one)
    for same in (other, tmp_path / "link"):
        with pytest.raises(InputError, match="--out and --trace both write"):
            check_outputs({"--out": one, "--trace": same})
    (tmp_path / "dangling").symlink_to(tmp_path / "later")
    with pytest.raises(InputError, match="both write"):
        check_outputs({"--out": tmp_path / "dangling", "--trace": tmp_path / "later"})
    check_outputs({"--out": Path(os.devnull), "--trace": Path(os.devnull)})


def test_golden_self_keeps_its_file_when_the_disk_is_full(tmp_path: Path) -> None:
    path = tmp_path / "ascend910a.npz"
    words = ("golden", "self", "--device", "ascend910a", "--out", str(tmp_path), "--replace")
    one = np.zeros((1, 1, 1), np.uint16)
    write_sets(path, [GoldenSet("mmad", "old", one, one, one, one)], Meta("self", "ascend910a"))
    before = path.read_bytes()
    done = limited(4096, *words)
    assert (done.returncode, path.read_bytes(), left(tmp_path)) == (2, before, [path.name])
    assert done.stderr == f"hwsim: error: cannot write {path}: File too large; what was there is as it was\n"
    assert limited(1 << 20, *words).returncode == 0 and path.read_bytes() != before


def test_traces_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    for suffix in ("json", "csv", "npz"):
        path = tmp_path / f"t.{suffix}"
        done = limited(1000, "run", "--m", "64", "--n", "64", "--k", "64", "--no-exact", "-q", "--trace", str(path))
        assert (done.returncode, left(tmp_path)) == (2, [])
        assert done.stderr == f"hwsim: error: cannot write {path}: File too large; nothing was left there\n"


#: Calls that write a file themselves, and the modules that may: the writer, and crash.py, whose file mkstemp makes.
WRITES = {"write_text", "write_bytes", "savez", "savez_compressed", "save", "savetxt", "tofile", "dump"}
MAY_WRITE = {"host/files.py", "cli/crash.py"}


def test_nothing_else_opens_a_file_to_write() -> None:
    """An open with a mode of writing, or np.save and its kind on anything but the `file` of `whole_file`."""
    found = []
    for path in sorted((ROOT / "hwsim").rglob("*.py")):
        name = path.relative_to(ROOT / "hwsim").as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if name in MAY_WRITE or not isinstance(node, ast.Call):
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            given = [*node.args, *(word.value for word in node.keywords)]
            modes = {x.value for x in given if isinstance(x, ast.Constant) and isinstance(x.value, str)}
            if any(isinstance(x, ast.Attribute) and x.attr == "devnull" for x in given):
                continue
            opens = called in ("open", "fdopen") and any(set(mode) & set("wax+") and len(mode) < 4 for mode in modes)
            to_file = bool(node.args) and isinstance(node.args[0], ast.Name) and node.args[0].id == "file"
            own = isinstance(node.func, ast.Name)  # hwsim.host.files.write_text
            if opens or (called in WRITES and not to_file and not own):
                found.append(f"{name}:{node.lineno} {called}")
    assert found == []
