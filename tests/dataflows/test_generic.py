"""The dataflow of an accelerator of one's own, on the template that users copy: bits, cycles against closed forms."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import hwsim
from hwsim.cli import main
from hwsim.devices.templates import templates
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands

TEMPLATE = Path(__file__).parents[2] / "configs" / "templates" / "accelerator.yaml"
MACS_PER_CYCLE, CORES, HBM_BYTES_PER_CYCLE = 4096, 16, 2000


def changed(**keys: Any) -> dict[str, Any]:
    """The template with other numbers: {"links.GM_SRAM.bytes_per_cycle": 8}."""
    data = yaml.safe_load(TEMPLATE.read_text())
    for path, value in keys.items():
        *way, last = path.split("__")
        place = data
        for key in way:
            place = place[key]
        place[last] = value
    return data


def cycles(device: object, m: int, n: int, k: int, **options: Any) -> int:
    return hwsim.run(m=m, n=n, k=k, device=device, format="bf16", exact=False, **options).cycles


@pytest.mark.parametrize(("m", "n", "k"), [(4096, 4096, 4096), (8192, 4096, 2048)])
def test_large_products_take_what_the_multipliers_take(m: int, n: int, k: int) -> None:
    """Within 5 %: the first block's load, the last tile's store."""
    least = m * n * k / MACS_PER_CYCLE / CORES
    assert least < cycles(TEMPLATE, m, n, k) < 1.05 * least


@pytest.mark.parametrize(("n", "k"), [(8192, 4096), (16384, 1024)])
def test_a_row_takes_what_memory_takes(n: int, k: int) -> None:
    """B is read once, the 16 rows of A for each tile of C, all at HBM's rate."""
    run = hwsim.run(m=16, n=n, k=k, device=TEMPLATE, format="bf16", exact=False)
    tiles = math.ceil(n / run.options["tile"]["n"])
    least = (2 * k * (n + 16 * tiles) + 4 * 16 * n) / HBM_BYTES_PER_CYCLE
    assert least < run.cycles < 1.05 * least


def test_numbers_of_the_file_move_the_cycles() -> None:
    size = (512, 2048, 2048)
    plain = cycles(TEMPLATE, *size)
    assert cycles(changed(cores=8), *size) > 1.8 * plain
    slow = changed(links__GM_SRAM__bytes_per_cycle=8)
    read = 2 * sum(x * y for x, y in ((512, 2048), (2048, 2048)))
    assert cycles(slow, *size) > max(2 * plain, read / 8 / CORES)
    small = hwsim.run(
        m=512, n=2048, k=2048, device=changed(memories__SRAM__capacity_bytes=65536), format="bf16", exact=False
    )
    assert (
        small.options["stages"]
        * 2
        * small.options["tile"]["k"]
        * (small.options["tile"]["m"] + small.options["tile"]["n"])
        <= 65536
    )
    with pytest.raises(hwsim.UnsupportedError, match="no tile of the tiled dataflow fits"):
        cycles(changed(memories__ACC__capacity_bytes=512), *size)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (33, 40, 67), (64, 48, 130)])
def test_bits_are_the_dot_units_by_either_reading(m: int, n: int, k: int) -> None:
    rng = np.random.default_rng([m, n, k])
    words = [rng.integers(0, 1 << 16, size).astype(np.uint16) & 0xBBFF for size in ((m, k), (k, n))]
    a, b = (x.view(np.float16) for x in words)
    direct = hwsim.run(a, b, device=TEMPLATE, format="fp16").c
    by_program = hwsim.run(a, b, device=TEMPLATE, format="fp16", functional=True).c
    assert np.array_equal(direct.view(np.uint32), by_program.view(np.uint32))
    spec = hwsim.devices.dot_spec(hwsim.device(TEMPLATE), "mma.m16n16k16.f32.fp16.fp16")
    code = 0
    for start in range(0, k, 16):
        row, column = (np.zeros(16, np.uint16) for _ in range(2))
        row[: min(16, k - start)] = words[0][-1, start : start + 16]
        column[: min(16, k - start)] = words[1][start : start + 16, -1]
        code = reference.chain(spec, DotOperands(row.tolist(), column.tolist(), code))[-1].result
    assert code == int(direct.view(np.uint32)[-1, -1])


@pytest.mark.parametrize("scheme", ["bf16x9", "bf16x3", "markidis"])
def test_schemes_have_bits_and_cycles_there(scheme: str) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 96, 96), np.float32)
    run = hwsim.run(a, b, device=TEMPLATE, scheme=scheme)
    assert run.cycles > 0 and run.error["relative_frobenius"] < 1e-4
    assert math.isfinite(run.tflops)


def test_its_evidence_is_an_assumption_throughout() -> None:
    run = hwsim.run(m=64, n=64, k=64, device=TEMPLATE, format="bf16", exact=False)
    assert set(run.evidence.values()) <= {"assumption"}


def test_a_new_file_is_a_device_of_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in templates():
        file = tmp_path / f"mine_{name}.yaml"
        assert main(["devices", "new", str(file), "--template", name]) == 0
        assert main(["devices", "check", str(file)]) == 0
        assert hwsim.device(file).name == f"mine_{name}"
    capsys.readouterr()
    for words, said in (
        ([str(file)], "is there already"),
        ([str(tmp_path / "x.txt")], "must end in .yaml"),
        ([str(tmp_path / "x.yaml"), "--template", "acelerator"], "did you mean"),
    ):
        assert main(["devices", "new", *words]) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "x.yaml").exists()


def test_bits_remain_where_no_tile_fits() -> None:
    small = changed(memories__ACC__capacity_bytes=512)
    result = hwsim.run(m=64, n=64, k=64, device=small, format="bf16")
    assert result.c is not None and result.cycles is None
    assert "no tile of the tiled dataflow fits" in result.timing_note
    with pytest.raises(hwsim.InputError, match="tile 64,64,64"):
        hwsim.run(m=64, n=64, k=64, device=small, format="bf16", tile=(64, 64, 64))
