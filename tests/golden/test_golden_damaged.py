"""Archives that are damaged, incomplete or made to harm: one clear error each, nothing unpacked without bound."""

from __future__ import annotations

import io
import json
import random
import resource
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwsim.cli import main
from hwsim.datafiles.archive import LIMIT, open_archive
from hwsim.errors import InputError
from hwsim.golden import simulated
from hwsim.golden.format import META, Meta, read_sets, write_sets
from hwsim.golden.gemms import gemm_files, read_gemms
from hwsim.golden.thirdparty import read_third_party
from hwsim.golden.verify import all_sets, verify

HERE = Path(__file__).parent
GOOD = HERE / "self" / "ascend910a.npz"
FILES = {"sets": GOOD, "gemms": HERE / "h200" / "gemm.npz"}

Arrays = dict[str, Any]


def arrays_of(path: Path) -> Arrays:
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


def changed(folder: Path, change: Callable[[Arrays], Any], of: Path = GOOD) -> Path:
    """A folder with the good file, and a copy that `change` has altered."""
    arrays = arrays_of(of)
    change(arrays)
    np.savez(folder / "changed.npz", **arrays)
    (folder / "good.npz").write_bytes(GOOD.read_bytes())
    return folder / "changed.npz"


def refused(capsys: pytest.CaptureFixture[str], *paths: Path) -> str:
    """What `hwsim golden verify` says; it must not pass, and name the file."""
    assert main(["golden", "verify", *map(str, paths)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and captured.err.startswith("hwsim: error: ")
    return captured.err


KEY = next(name.rpartition("/")[0] for name in arrays_of(GOOD) if name != META)


def no_cases(arrays: Arrays) -> None:
    for x in "abcd":
        arrays[f"{KEY}/{x}"] = arrays[f"{KEY}/{x}"][:0]


def renamed(to: str) -> Callable[[Arrays], None]:
    def change(arrays: Arrays) -> None:
        for x in "abcd":
            arrays[to + x] = arrays.pop(f"{KEY}/{x}")

    return change


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (no_cases, f"set {KEY}: zero cases prove nothing"),
        (renamed(f"x/{KEY}/"), f"key x/{KEY}/a is of no set"),
        (renamed("only/two"), "key only/twoa is of no set"),
        (renamed("//"), "key //a is of no set"),
        (lambda arrays: arrays.pop(f"{KEY}/b"), f"set {KEY} lacks b"),
        (lambda arrays: arrays.pop(f"{KEY}/d"), f"set {KEY} has no results"),
        (lambda arrays: [arrays.pop(f"{KEY}/{x}") for x in "abc"], f"set {KEY} lacks a, b, c"),
        (lambda arrays: arrays.update({f"{KEY}/e": np.zeros(1)}), f"key {KEY}/e is of no set"),
        (lambda arrays: [arrays.pop(name) for name in list(arrays) if name != META], "holds no set"),
        (lambda arrays: arrays.update({f"{KEY}/a": np.zeros((1, 4, 4), np.float32)}), f"set {KEY}: "),
        (lambda arrays: arrays.update(meta=np.zeros(1, np.uint8) + 255), "meta is no UTF-8"),
        (lambda arrays: arrays.update(meta=np.frombuffer(b"[" * 100_000, np.uint8)), "meta is no JSON"),
        (lambda arrays: arrays.update(meta=np.frombuffer(b'{"origin": "self", "device": 5}', np.uint8)), "of texts"),
    ],
)
def test_incomplete_sets_do_not_pass(capsys: Any, tmp_path: Path, change: Any, said: str, alone: bool) -> None:
    path = changed(tmp_path, change)
    message = refused(capsys, path if alone else tmp_path)
    assert said in message and str(path) in message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda arrays: arrays.pop("cublas.f16.k64/bt", None) is None and arrays.pop(_first(arrays, "/bt")), "/bt"),
        (lambda arrays: arrays.update({"x/cublas.f16.k64/a": np.zeros((1, 1), np.uint16)}), "key x/cublas.f16.k64/a"),
        (lambda arrays: arrays.update({"cublas.f16/a": np.zeros((1, 1), np.uint16)}), "key cublas.f16/a"),
        (lambda arrays: arrays.update({_first(arrays, "/d"): np.zeros((0, 5), np.uint32)}), "are needed"),
    ],
)
def test_incomplete_gemms_do_not_pass(tmp_path: Path, change: Any, said: str) -> None:
    path = changed(tmp_path, change, FILES["gemms"])
    with pytest.raises(InputError) as caught:
        list(read_gemms(path))
    assert said in str(caught.value) and str(path) in str(caught.value)


def _first(arrays: Arrays, end: str) -> str:
    return next(name for name in arrays if name.startswith("cublas.") and name.endswith(end))


CAPTURE = {"a": np.zeros((3, 16), np.uint16), "b": np.zeros((3, 16), np.uint16)} | {
    name: np.zeros(3, np.uint32) for name in ("c", "d32")
}


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("A100_fp16", {"d16": np.zeros(3, np.uint16)}, "has d16, but no c16"),
        ("A100_fp16", {"a": np.zeros((3, 17), np.uint16)}, "K of at most 16"),
        ("A100_fp16", {"c": np.zeros(2, np.uint32)}, "are needed"),
        ("A100_fp16", {name: array[:0] for name, array in CAPTURE.items()}, "zero cases"),
        ("A100_fp16", {"e": np.zeros(1)}, "key e"),
        ("mine", {}, "DEVICE_FORMAT.npz"),
    ],
)
def test_incomplete_captures_do_not_pass(tmp_path: Path, name: str, change: Arrays, said: str) -> None:
    path = tmp_path / f"{name}.npz"
    np.savez(path, **(CAPTURE | change))
    with pytest.raises(InputError) as caught:
        list(read_third_party(path))
    assert said in str(caught.value) and str(path) in str(caught.value)


@pytest.mark.parametrize("kind", FILES)
def test_damaged_bytes_give_the_one_error_or_none(tmp_path: Path, kind: str) -> None:
    """Cut, and overwritten at random: InputError, or arrays that read as before. No other error leaves the readers."""
    good, rng, failed = FILES[kind].read_bytes(), random.Random(7), 0
    path = tmp_path / "damaged.npz"
    for trial in range(120):
        data = bytearray(good[: rng.randrange(len(good))] if trial % 4 == 0 else good)
        if trial % 4:
            # the directory stands at the end, headers of arrays at their starts
            near = len(data) - 1 - rng.randrange(min(len(data), 4000)) if trial % 2 else rng.randrange(len(data))
            for at in range(near, min(near + rng.choice((1, 4, 40)), len(data))):
                data[at] = rng.randrange(256)
        path.write_bytes(data)
        try:
            for _ in read_gemms(path) if gemm_files([path]) else all_sets([path], device="h200"):
                pass
        except InputError as error:
            assert str(path) in str(error)
            failed += 1
    assert failed > 60


def raw(path: Path, name: str, header: str, data: bytes, compress: int = zipfile.ZIP_STORED) -> Path:
    """An archive of one array whose header says what it is told to say."""
    text = header.encode() + b"\n"
    with zipfile.ZipFile(path, "w", compress) as out:
        out.writestr(f"{name}.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data)
    return path


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("{'descr': '<u4', 'fortran_order': False, 'shape': (1099511627776,)}", "4,398,046,511,104 bytes; 4 are there"),
        ("{'descr': '<u4', 'fortran_order': False, 'shape': (-1, -1)}", "are there"),
        ("{'descr': '<u4', 'fortran_order': False, 'shape': (0,)}", "0 bytes; 4 are there"),
        ("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", "Python objects"),
        ("{'descr': '|V0', 'fortran_order': False, 'shape': (1,)}", "are there"),
        ("{'descr': '<u4'}", "damaged"),
        ("(" * 5000, "damaged"),
    ],
)
def test_what_a_header_claims_is_checked(tmp_path: Path, header: str, said: str) -> None:
    path = raw(tmp_path / "x.npz", "m/s/a", header, bytes(4))
    with pytest.raises(InputError, match="array m/s/a is damaged") as caught, open_archive(path) as archive:
        _ = archive["m/s/a"]
    assert said in str(caught.value)


def test_a_bomb_is_refused_before_it_is_unpacked(capsys: Any, tmp_path: Path) -> None:
    """1.2 GB of zeros in a megabyte: refused by the sizes in the directory; memory stays what it was."""
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out, out.open(f"{KEY}/a.npy", "w") as file:
        for _ in range(LIMIT // (1 << 22) + 1):
            file.write(bytes(1 << 22))
    assert path.stat().st_size < 4 << 20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    message = refused(capsys, path)
    assert "bytes when unpacked; at most 1,073,741,824 are read" in message
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB


def test_a_directory_that_lies_unpacks_no_more_than_it_says(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    packed = io.BytesIO()
    np.save(packed, np.zeros(1 << 20, np.uint32))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("x.npy", packed.getvalue())
    data, size = path.read_bytes(), struct.pack("<I", len(packed.getvalue()))
    assert data.count(size) == 2
    path.write_bytes(data.replace(size, struct.pack("<I", 4096)))
    with pytest.raises(InputError, match="array x is damaged"), open_archive(path) as archive:
        _ = archive["x"]


def test_two_arrays_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(GOOD.read_bytes())
    with (
        zipfile.ZipFile(path, "a") as out,
        zipfile.ZipFile(GOOD) as good,
        pytest.warns(UserWarning, match="Duplicate name"),
    ):
        out.writestr(f"{KEY}/d.npy", good.read(f"{KEY}/d.npy"))
    with pytest.raises(InputError, match=f"two arrays are called {KEY}/d"):
        list(read_sets(path))


def test_archives_are_read_as_numpy_reads_them(tmp_path: Path) -> None:
    arrays = {
        "c": np.arange(6, dtype=np.uint16).reshape(2, 3),
        "f": np.asfortranarray(np.arange(6, dtype=np.uint16).reshape(2, 3)),
        "big": np.arange(5, dtype=">u4"),
        "none": np.zeros((3, 0), np.uint8),
        "scalar": np.array(7, np.uint8),
        "text": np.array("\u00b5"),
    }
    np.savez_compressed(tmp_path / "x.npz", **arrays)
    with open_archive(tmp_path / "x.npz") as archive:
        assert archive.files == list(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(archive[name], array)
            assert archive[name].shape == array.shape and archive[name].flags.writeable
            assert archive[name].dtype == array.dtype.newbyteorder("=")
        with pytest.raises(InputError, match="has no array y; it has c, f, big"):
            _ = archive["y"]


def test_what_is_not_an_ordinary_file_is_not_opened(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe.npz")
    with pytest.raises(InputError, match=r"pipe\.npz: not an ordinary file"):
        verify([tmp_path / "pipe.npz"], simulated.mma)


def test_what_could_not_be_read_back_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sets = list(read_sets(GOOD))
    monkeypatch.setattr("hwsim.golden.format.LIMIT", 100_000)
    with pytest.raises(InputError, match="more than 100,000 bytes of arrays"):
        write_sets(tmp_path / "x.npz", sets, Meta("self", "ascend910a"))
    assert not (tmp_path / "x.npz").exists()


def test_the_good_file_passes() -> None:
    assert verify([GOOD], simulated.mma).mismatches == 0
    assert json.loads(bytes(arrays_of(GOOD)[META]))["origin"] == "self"
