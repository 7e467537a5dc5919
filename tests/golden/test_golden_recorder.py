"""The recorder's sources: the table is complete, and nvcc accepts every kernel; recording itself needs a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hopper
import numpy as np
import pytest

from hwsim._kernels import gemm
from hwsim.errors import InputError, UnsupportedError
from hwsim.golden import recorder
from hwsim.golden.format import Meta, read_meta, read_sets, write_sets
from hwsim.golden.instructions import parse
from hwsim.golden.recorder import Recorder, build, generate, gpu_target, nvcc_path, select
from hwsim.golden.recording import device_name, drawn, with_results


def names(arch: str, wgmma_n: Sequence[int] = (8,)) -> list[str]:
    return generate(arch, tuple(wgmma_n), names=True).split()


def has_nvcc() -> bool:
    try:
        nvcc_path()
    except UnsupportedError:
        return False
    return True


def has_gpu() -> bool:
    try:
        gpu_target()
    except UnsupportedError:
        return False
    return True


needs_nvcc = pytest.mark.skipif(not has_nvcc(), reason="nvcc is not installed")


def test_the_table_has_what_each_target_has() -> None:
    turing, ampere, ada, hopper_names, blackwell = (set(names(arch)) for arch in ("75", "80", "89", "90a", "100a"))
    assert {"mma.m8n8k4.f32.f16.f16.f16", "mma.m16n8k8.f16.f16.f16.f16", "mma.m8n8k16.s32.s8.s8.s32"} <= turing
    assert {"mma.m16n8k16.f32.bf16.bf16.f32", "mma.m16n8k4.f32.tf32.tf32.f32", "mma.m8n8k4.f64.f64.f64.f64"} <= ampere
    assert "mma.m16n8k32.f16.e4m3.e5m2.f16" in ada - ampere
    assert {"mma.m16n8k16.f64.f64.f64.f64", "wgmma.m64n8k32.satfinite.s32.u8.s8"} <= hopper_names - ada
    with np.load(Path(__file__).parent / "h200" / "instructions.npz") as archive:
        assert {name.partition("/")[0] for name in archive.files} <= hopper_names
    assert {"tcgen05.mma.m128n16k16.f16.f16.f16.f16", "tcgen05.mma.m64n8k32.f8f6f4.f32.e2m1.e5m2"} <= blackwell
    assert turing < ampere < ada < hopper_names
    assert not any(name.startswith("wgmma") for name in blackwell)


def test_any_legal_n_of_wgmma() -> None:
    chosen = [name for name in names("90a", (16, 40, 256)) if name.startswith("wgmma")]
    assert {parse(name).n for name in chosen} == {16, 40, 256}
    assert {parse(name).n for name in chosen if ".s32." in name} == {16, 256}
    for wrong in (12, 264):
        with pytest.raises(InputError, match="multiples of 8"):
            generate("90a", (wrong,))
    with pytest.raises(InputError, match="--arch"):
        generate("hopper")


def library_for(arch: str, folder: Path) -> None:
    """Builds and opens the library of a target: names, shapes and sizes agree with hwsim's reading of the names."""
    library = build(arch, wgmma_n=(8,), folder=folder)
    opened = Recorder(library)
    assert list(opened.instructions) == names(arch)
    assert build(arch, wgmma_n=(8,), folder=folder) == library  # found again, not built again
    with pytest.raises(UnsupportedError, match="did you mean"):
        opened.run("mma.m16n8k8.f32.f16.f16.f23", *(np.zeros((1, 1, 1), np.uint16),) * 3)


@needs_nvcc
@pytest.mark.parametrize("arch", ["80"])
def test_nvcc_accepts_the_sources(arch: str, tmp_path: Path) -> None:
    library_for(arch, tmp_path)


@pytest.mark.slow
@needs_nvcc
@pytest.mark.parametrize("arch", ["75", "89", "90a", "100a"])
def test_nvcc_accepts_the_sources_of_other_targets(arch: str, tmp_path: Path) -> None:
    library_for(arch, tmp_path)


def test_a_missing_compiler_or_gpu_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.delenv("NVCC", raising=False)
    with pytest.raises(UnsupportedError, match="nvcc was not found"):
        build("80")
    with pytest.raises(UnsupportedError, match="no NVIDIA GPU was found"):
        gpu_target()
    with pytest.raises(UnsupportedError, match=r"none\.so"):
        Recorder(tmp_path / "none.so")


def test_a_failing_compiler_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "nvcc"
    broken.write_text("#!/bin/sh\necho 'no such target' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("NVCC", str(broken))
    with pytest.raises(UnsupportedError, match="no such target"):
        build("80", folder=tmp_path)


def test_select() -> None:
    known = {name: parse(name) for name in names("90a")}
    assert [entry.name for entry in select(known, ["wgmma.m64n8k8*", "mma.m16n8k4.f32*"])] == [
        "wgmma.m64n8k8.f32.tf32.tf32",
        "mma.m16n8k4.f32.tf32.tf32.f32",
    ]
    assert len(select(known, None)) == len(known)
    with pytest.raises(InputError, match="no instruction is called"):
        select(known, ["wgmma.m64n8k9"])


# What follows runs with the simulator in the place of the GPU.
ENTRIES = [parse(name) for name in ("wgmma.m64n8k16.f32.f16.f16", "mma.m16n8k32.s32.s8.u8.s32")]


def simulated(name: str, a: Any, b: Any, c: Any, scale_d: int = 0) -> Any:
    assert scale_d == 0
    return gemm(hopper.spec(name), a, np.swapaxes(b, 1, 2), c)


def test_recorded_sets_are_verified_again(tmp_path: Path) -> None:
    path, again = tmp_path / "x.npz", tmp_path / "y.npz"
    sets = list(drawn(ENTRIES, ["narrow", "cancel"], 5, seed=3))
    assert [golden.key for golden in sets] == [
        f"{entry.name}/{name}" for entry in ENTRIES for name in ("narrow", "cancel")
    ]
    assert write_sets(path, with_results(sets, simulated), Meta("silicon", "h200")) == 2 * 5 * (64 * 8 + 16 * 8)
    meta = read_meta(path)
    assert meta is not None
    write_sets(again, with_results(read_sets(path), simulated), meta)
    for one, two in zip(read_sets(path), read_sets(again), strict=True):
        np.testing.assert_array_equal(one.d, two.d)
        np.testing.assert_array_equal(one.a, two.a)


def test_the_seed_alone_fixes_operands() -> None:
    first, second, other = (list(drawn(ENTRIES[:1], ["normal", "huge"], 2, seed)) for seed in (1, 1, 2))
    alone = list(drawn(ENTRIES[:1], ["huge"], 2, 1))
    np.testing.assert_array_equal(first[1].a, second[1].a)
    np.testing.assert_array_equal(first[1].a, alone[0].a)
    assert not np.array_equal(first[1].a, other[1].a)
    with pytest.raises(InputError, match="cases"):
        list(drawn(ENTRIES, ["normal"], 0, 1))


@pytest.mark.skipif(not (has_nvcc() and has_gpu()), reason="recording needs nvcc and an NVIDIA GPU")
def test_the_gpu_gives_the_captured_results() -> None:
    """On a Hopper GPU the recorder reproduces the captures; on another it must at least run."""
    opened = Recorder(build())
    assert opened.gpu().capability >= 75
    ran = 0
    for golden in read_sets(Path(__file__).parent / "h200" / "instructions.npz", "/narrow"):
        if golden.instruction in opened.instructions:
            d = opened.run(golden.instruction, golden.a, golden.b, golden.c)
            ran += 1
            if opened.gpu().capability == 90:
                np.testing.assert_array_equal(d, golden.d)
    assert ran


def test_the_device_is_found_by_the_gpu_name() -> None:
    known = ["h100", "h200", "a2", "a100", "l40s", "rtx6000", "rtxpro6000"]
    for gpu, name in (
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA A2", "a2"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA RTX PRO 6000 Blackwell", "rtxpro6000"),
    ):
        assert device_name(gpu, known) == name
    with pytest.raises(InputError, match="give device="):
        device_name("NVIDIA A200", known)


def test_ctypes_knows_the_library_interface() -> None:
    """The names that Python asks for are the ones that the header defines."""
    header = (recorder.source_folder() / "recorder.cuh").read_text()
    for name in ("record_count", "record_name", "record_shape", "record_device", "record_error", "record_run"):
        assert f" {name}(" in header.replace("*", " ")
