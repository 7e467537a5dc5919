"""Run a matrix unit of one's own (the template matrix_unit), and see what one of its numbers does to the error."""

import tempfile
from pathlib import Path

import numpy as np

import hwsim
from hwsim.devices.templates import new_device_file


def variant(file: Path, fraction_bits: int) -> dict[str, object]:
    """The device of the file with another width of the aligner."""
    mine = {"value": fraction_bits, "source": "a try", "evidence": "assumption"}
    return {
        "schema_version": 1,
        "name": f"custom-{fraction_bits}",
        "extends": str(file),
        "dot_units": {"narrow": {"fraction_bits": mine}},
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        show(new_device_file(Path(folder) / "mine.yaml", "matrix_unit"))


def show(file: Path) -> None:
    """Errors of the file's device, and of others with another width."""
    device = hwsim.device(file)
    print(device.title)
    for name in device.instructions():
        print(" ", name)

    # 1000 instructions at once; typed arrays in, a typed array out.
    rng = np.random.default_rng(0)
    a = rng.standard_normal((1000, 8, 16)).astype(np.float16)
    b = rng.standard_normal((1000, 16, 8)).astype(np.float16)
    c = np.zeros((1000, 8, 8), np.float32)
    true = a.astype(np.float64) @ b.astype(np.float64)

    print("\nroot mean square error of 64000 dot products of 16")
    exact = device.mma("dot.exact.m8n8k16.f32.f16.f16", a, b, c)
    print(f"  exact step of 4        {np.sqrt(np.mean((exact - true) ** 2)):.2e}")
    for bits in (8, 12, 16, 20, 24):
        d = hwsim.device(variant(file, bits)).mma("dot.m8n8k16.f32.f16.f16", a, b, c)
        print(f"  {bits:2} fraction bits kept  {np.sqrt(np.mean((d - true) ** 2)):.2e}")

    # Codes (bit patterns) in, codes out: 1 + 2^-13 with 12 fraction bits.
    one, small = 0x3C00, 0x0400  # 1 and 2^-14 in fp16
    row, column = np.array([one, small], np.uint16), np.array([one, 0x4000], np.uint16)
    print(f"\n1 * 1 + 2^-14 * 2 = {device.dot('dot.m8n8k16.f32.f16.f16', row, column, np.uint32(0)):#010x}")


if __name__ == "__main__":
    main()
