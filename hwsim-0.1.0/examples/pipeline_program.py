"""A program written by hand: one core of an Ascend 910A multiplies 128 x 4096 by 4096 x 128, block by block of K.

The same program goes to both machines: the functional one for the bits, the timing one for the cycles. With one
slot per buffer every block waits for the one before; with two, transfers run beside the cube.
"""

import numpy as np

import hwsim
from hwsim.machines import functional, timing
from hwsim.program.builder import KernelBuilder, StreamBuilder
from hwsim.program.check import check
from hwsim.program.ir import ZERO, GlobalArray, GlobalTile, LocalTile, Program, Sync

M, N, K, B_K = 128, 128, 4096, 64
UNIT = "mmad.m16n16k16.f32.f16.f16"


def program(slots: int) -> Program:
    """C = A B on one core, `slots` slots in each of the buffers that blocks of A and B pass through."""
    kernel = KernelBuilder("gemm")
    l1 = {name: kernel.ring(name, "L1", slots, 2 * B_K * M) for name in ("A", "B")}
    l0 = {name: kernel.ring(f"L0{name}", f"L0{name}", slots, 2 * B_K * M) for name in ("A", "B")}
    kernel.buffer("acc", "L0C", 1, 4 * M * N)
    kernel.buffer("out", "UB", 1, 4 * M * N)
    summed, ready = kernel.semaphore("summed"), kernel.semaphore("ready")
    acc, out = LocalTile("acc", M, N, "fp32"), LocalTile("out", M, N, "fp32")

    s = StreamBuilder("main")
    for block in s.blocks("k", K, B_K):
        shape = {"A": (M, block.size), "B": (block.size, N)}
        place = {"A": (ZERO, block.start), "B": (block.start, ZERO)}
        for name in ("A", "B"):
            near, far = l1[name], l0[name]
            s.emit(
                "MTE2",
                "copy",
                near.tile("push", *shape[name], "fp16"),
                [GlobalTile(name, *place[name], *shape[name])],
                [near.free],
                [near.full],
            )
            s.pushed(near)
            s.emit(
                "MTE1",
                "copy",
                far.tile("push", *shape[name], "fp16"),
                [near.tile("pop", *shape[name], "fp16")],
                [near.full, far.free],
                [near.free, far.full],
            )
            s.popped(near)
            s.pushed(far)
        s.emit(
            "M",
            "mma",
            acc,
            [l0[name].tile("pop", *shape[name], "fp16") for name in ("A", "B")],
            [ring.full for ring in l0.values()],
            [ring.free for ring in l0.values()],
            unit=UNIT,
            zero_at=(block.loop,),
        )
        for ring in l0.values():
            s.popped(ring)
    s.emit("M", "sync", signals=[summed])
    s.emit("V", "copy", out, [acc], [summed], [Sync("ready")])
    s.emit("MTE3", "copy", GlobalTile("C", ZERO, ZERO, M, N), [out], [ready])
    kernel.group(0, 1, s)

    arrays = (GlobalArray("A", M, K, "fp16"), GlobalArray("B", K, N, "fp16"), GlobalArray("C", M, N, "fp32"))
    return Program(arrays, (kernel.finish(),), ("A", "B"), "C")


def main() -> None:
    """Run both variants on both machines; the bits are equal, the cycles are not."""
    device = hwsim.device("ascend910a")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((M, K), (K, N)))
    inputs = {"A": a.view(np.uint16), "B": b.view(np.uint16)}
    bits, cycles = [], []
    for slots in (1, 2):
        work = program(slots)
        check(work, device)
        bits.append(functional.run(work, device, inputs))
        cycles.append(timing.run(work, device).cycles)
        print(f"{slots} slots: {cycles[-1]:,} cycles, C[0, 0] = {bits[-1][0, 0]:#010x}")
    if not np.array_equal(*bits):
        raise SystemExit("the number of slots changed the bits")
    print(f"double buffering: {cycles[0] / cycles[1]:.2f} times as fast, same bits")


if __name__ == "__main__":
    main()
