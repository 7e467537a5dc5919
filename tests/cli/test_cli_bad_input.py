"""Wrong input: one clear error that says where and what is allowed, exit code 2, nothing half-written."""

import errno
import os
import stat

import numpy as np
import pytest

from hwsim.devices.registry import package_folder

RUN = ("run", "--device", "ascend910a", "--scheme", "sgemm-cube")
TINY = (*RUN, "--m", 16, "--n", 16, "--k", 16)


@pytest.fixture
def files(tmp_path):
    """Save a good A (8 x 4) and B (4 x 8) where nothing else is said, and give the words for them."""

    def save(a=None, b=None):
        for name, x, shape in (("a.npy", a, (8, 4)), ("b.npy", b, (4, 8))):
            if isinstance(x, bytes):
                (tmp_path / name).write_bytes(x)
            else:
                np.save(tmp_path / name, np.ones(shape, np.float32) if x is None else x, allow_pickle=True)
        return ("--a", "a.npy", "--b", "b.npy")

    return save


GOOD = np.ones((8, 4), np.float32)


@pytest.mark.parametrize(
    ("a", "words"),
    [
        (b"not an array", ["a.npy", "not a .npy file", "numpy.save"]),
        (b"", ["a.npy", "not a .npy file"]),
        (b"PK\x03\x04", ["a.npy", "not a .npy file"]),
        (b"\x93NUMPY\x01\x00", ["a.npy", "damaged"]),
        (b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f4',", ["a.npy", "damaged"]),
        (np.array([[None, 1]], object), ["a.npy", "Python objects", "float32"]),
        (np.array([["1", "2"]]), ["a.npy", "<U1", "float32"]),
        (np.ones((8, 4), np.complex64), ["a.npy", "complex64", "float32"]),
        (np.ones((8, 4), bool), ["a.npy", "bool"]),
        (np.ones((8, 4), np.longdouble), ["a.npy", "allowed"]),
        (np.ones(4, np.float32), ["a.npy", "(4,)", "two dimensions"]),
        (np.float32(1), ["a.npy", "()", "two dimensions"]),
        (np.ones((2, 2, 2), np.float32), ["a.npy", "b.npy", "2 x 2 x 2", "4 x 8"]),
        (np.ones((8, 0), np.float32), ["a.npy", "(8, 0)", "at least one"]),
        (np.ones((8, 5), np.float32), ["a.npy", "b.npy", "8 x 5", "4 x 8", "A's columns must equal B's rows"]),
    ],
)
def test_matrices_that_are_none(refused, files, a, words):
    message = refused(*RUN, *files(a))
    assert all(word in message for word in words), message


def test_a_truncated_matrix(refused, files, tmp_path):
    words = files()
    whole = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(whole[:-7])
    assert "damaged" in refused(*RUN, *words)


def test_a_matrix_that_is_not_there(refused, files):
    files()
    assert "cannot read the file of A gone.npy: No such file" in refused(*RUN, "--a", "gone.npy", "--b", "b.npy")
    assert "it is a folder" in refused(*RUN, "--a", ".", "--b", "b.npy")


def test_one_matrix_alone(refused, files):
    files()
    assert "give both" in refused(*RUN, "--a", "a.npy")
    assert "give both" in refused(*RUN, "--b", "b.npy")


def test_sizes_that_do_not_fit_the_matrices(refused, files):
    assert "m = 9, but the matrices give m = 8" in refused(*RUN, *files(), "--m", 9)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--k", 0), ["k = 0", "at least 1"]),
        (("--m", -3), ["m = -3", "at least 1"]),
        (("--n", "many"), ["n = 'many'", "an integer of at least 1"]),
        (("--threads", 0), ["threads = 0", "at least 1"]),
        (("--threads", 1 << 31), ["threads = 2147483648", "at most 1024"]),
        (("--seed", -1), ["seed = -1", "at least 0"]),
        (("--tile", "176,64"), ["tile", "2 numbers", "m, k, n"]),
        (("--tile", "big"), ["tile = 'big'", "176,64,176"]),
        (("--tile", "m=16,k=16"), ["tile", "allowed: m, k, n"]),
        (("--tile", "0,16,16"), ["tile m = 0"]),
        (("--tile", "512,512,176"), ["L0A", "512", "Allowed (Eq. 10)"]),
        (("--tile", "17,64,176"), ["b_m = 17", "multiple of 16"]),
        (("--n-fused", 100000), ["n_fused = 100000"]),
        (("--buffering", "triple"), ["triple", "single, double"]),
        (("--scaling-exponent", "many"), ["scaling_exponent = 'many'", "an integer of at least 0"]),
        (("--accumulation", "rowwise"), ["rowwise", "termwise, elementwise"]),
        (("--format", "fp16"), ["sgemm-cube has no option 'format'", "scaling_exponent, accumulation, k_group"]),
        (("--bogus",), ["--bogus"]),
        (("--thread", 2), ["--thread"]),
        (("--trace", "t.txt"), ["t.txt", ".pftrace (Perfetto, with flows), .json", ".parquet"]),
        (("--gantt", "--no-timing"), ["--gantt needs cycles", "--no-timing"]),
        (("--gantt", "--json"), ["--gantt is text", "--json"]),
        (("--trace-core", 0), ["--trace-core", "--trace FILE or --gantt"]),
        (("--trace", "t.json", "--trace-core", 999), ["trace of core 999", "allowed: 0 to"]),
        (("--trace", "t.json", "--trace-from", 5, "--trace-to", 5), ["from cycle 5 to 5", "0 <= from < to"]),
        (("--trace", "t.json", "--no-timing"), ["--no-timing"]),
        (("--out", "c.npy", "--no-exact"), ["--no-exact"]),
        (("--out", "nowhere/c.npy"), ["nowhere/c.npy", "there is no folder nowhere"]),
        (("--out", "."), ["it is a folder"]),
        (("--out", "x.json", "--trace", "./x.json"), ["--out and --trace both write x.json", "a file of its own"]),
        (("--trace", "nowhere/t.json"), ["there is no folder nowhere"]),
    ],
)
def test_options_that_do_not_fit(refused, tmp_path, words, said):
    message = refused(*RUN, *words)
    assert all(word in message for word in said), message
    assert list(tmp_path.iterdir()) == []


def test_names_that_nothing_has(refused):
    assert "did you mean 'ascend910a'" in refused("run", "--device", "ascend910")
    assert "did you mean 'sgemm-cube'" in refused("run", "--scheme", "sgemm_cube")
    assert "did you mean 'run'" in refused("rnu")
    assert "fp16" in refused("run", "--scheme", "native", "--format", "fp61")
    assert "cannot read the device file gone.yaml" in refused("run", "--device", "gone.yaml")


def test_no_verb(cli):
    done = cli()
    assert (done.code, done.out) == (2, "") and "devices" in done.err


DEVICE = (package_folder() / "ascend910a.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("cores: {", "corse: 3\ncores: {", ["unknown key 'corse'", "did you mean 'cores'"]),
        ("clock_mhz:", "clock_ghz:", ["unknown key 'clock_ghz'", "did you mean 'clock_mhz'"]),
        (
            "    capacity_bytes: 262144",
            "    capacity_bytes: 0",
            ["memories.L0C.capacity_bytes", "got 0", "at least 1"],
        ),
        ("default_format: fp16", "default_format: fp16\ndefault_format: int8", ["default_format", "twice"]),
        ("  L0A:\n    capacity_bytes", "  L0A:\n\tcapacity_bytes", ["tab"]),
        ('memories:\n  source: "ASC-HDR, UT"\n', "memories:\n", ["memories.L0A.capacity_bytes", "source"]),
    ],
)
def test_a_wrong_device_file(refused, tmp_path, old, new, said):
    assert DEVICE.count(old) >= 1
    (tmp_path / "chip.yaml").write_text(DEVICE.replace(old, new, 1))
    for words in (("devices", "check", "chip.yaml"), ("run", "--device", "chip.yaml", "--scheme", "sgemm-cube")):
        message = refused(*words)
        assert "chip.yaml:" in message
        assert all(word in message for word in said), message


def test_all_problems_of_a_device_file_at_once(refused, tmp_path):
    text = DEVICE.replace("cores: {", "corse: 3\ncores: {", 1).replace("capacity_bytes: 262144", "capacity_bytes: 0", 1)
    (tmp_path / "chip.yaml").write_text(text)
    message = refused("devices", "check", "chip.yaml")
    assert "problems in the device file\n" in message and "corse" in message and "L0C" in message


def test_full_disk_leaves_nothing(refused, tmp_path, monkeypatch):
    def save(file, array, **_):
        file.write(b"\x93NUMPY half of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np, "save", save)
    assert "cannot write c.npy: No space left on device" in refused(*TINY, "--out", "c.npy")
    assert list(tmp_path.iterdir()) == []


def test_full_disk_seen_only_at_the_end_keeps_the_old_file(refused, tmp_path, monkeypatch):
    def fsync(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "c.npy").write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", fsync)
    assert "No space left" in refused(*TINY, "--out", "c.npy")
    assert [path.name for path in tmp_path.iterdir()] == ["c.npy"]
    assert (tmp_path / "c.npy").read_bytes() == b"old"


def test_full_disk_while_a_trace_is_written(refused, tmp_path, monkeypatch):
    def fsync(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    for name in ("t.pftrace", "t.json", "t.csv", "t.npz"):
        assert f"cannot write {name}: No space left" in refused(*TINY, "--no-exact", "--trace", name)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_while_writing_leaves_nothing(cli, tmp_path, monkeypatch):
    def save(file, array, **_):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "save", save)
    assert cli(*TINY, "--out", "c.npy").code == 130
    assert list(tmp_path.iterdir()) == []


def test_no_permission(refused, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    assert "no permission to write in" in refused(*TINY, "--out", "c.npy")
    assert list(tmp_path.iterdir()) == []


def test_a_device_is_written_to_not_replaced(refused, tmp_path):
    full = tmp_path / "full"  # as /dev/full: every write fails
    try:
        os.mknod(full, stat.S_IFCHR | 0o666, os.makedev(1, 7))
        full.open("wb").close()
    except OSError:
        pytest.skip("no right to make a device node here")
    assert "cannot write full: No space left" in refused(*TINY, "--out", "full")
    assert stat.S_ISCHR(full.stat().st_mode)
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


def test_a_link_stays_a_link_and_rights_stay(cli, tmp_path):
    target = tmp_path / "real.npy"
    target.write_bytes(b"old")
    target.chmod(0o640)
    (tmp_path / "c.npy").symlink_to("real.npy")
    assert cli(*TINY, "--out", "c.npy").code == 0
    assert (tmp_path / "c.npy").is_symlink()
    assert np.load(target).shape == (16, 16)
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


@pytest.mark.parametrize("name", ["torch", "jax", "triton"])
def test_a_framework_is_no_verb_and_says_where_it_is(cli, name):
    done = cli(name, "--help")
    assert done.code == 2 and f"hwsim.{name}" in done.err and f"docs/{name}.md" in done.err
