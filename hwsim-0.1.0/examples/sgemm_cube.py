"""SGEMM-cube on a simulated Ascend 910A: the bits, the error, the cycles, and a trace for ui.perfetto.dev."""

import numpy as np

import hwsim

TRACE = "sgemm_cube_trace.json"


def main() -> None:
    """Multiply two fp32 matrices with three fp16 products, exactly as the simulated chip does."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((384, 512), np.float32)
    b = rng.standard_normal((512, 256), np.float32)
    result = hwsim.run(a, b, device="ascend910a", scheme="sgemm-cube", tile=(64, 64, 128))
    half = hwsim.matmul(a, b, device="ascend910a", scheme="native", format="fp16")
    exact = a.astype(np.float64) @ b.astype(np.float64)
    native = np.linalg.norm(half - exact) / np.linalg.norm(exact)

    print(f"C[0, 0] = {result.c[0, 0]!r}, code {result.codes[0, 0]:#010x}")
    print(f"error {result.error['relative_frobenius']:.2e}, fp16 alone {native:.2e}")
    for phase in result.phases:
        print(f"{phase['name']:8} {phase['cycles']:8,} cycles")
    result.trace.to_perfetto(TRACE)
    print(f"{len(result.trace):,} instructions in {TRACE}")
    print(f"{result.cycles:,} cycles in all, evidence: {result.evidence['timing']}")


if __name__ == "__main__":
    main()
