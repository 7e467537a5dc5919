"""The engine's work does not grow with the cores of a group, nor with repeats: instructions that it executes."""

from timing_device import device, kernel, load, program, store

from hwsim.machines.timing import run
from hwsim.program.builder import StreamBuilder
from hwsim.program.ir import CORE, CoreGroup, GlobalArray, GlobalTile, Kernel, LocalTile, Program, variable
from hwsim_lab.bench.units import engine_clock


def gemm_traffic(cores, rounds, depth):
    """The loads and stores of a 128-wide GEMM, tiles dealt out in turn: about 2 * rounds * depth instructions."""
    s = StreamBuilder("s")
    with s.loop("round", rounds) as (_, turn):
        row, col = s.derive("tile", turn * cores + variable(CORE), 64)
        with s.loop("k", depth) as (_, k):
            a, b = (row * 128, k * 64), (k * 64, col * 128)
            s.emit("IN", "copy", LocalTile("l1", 128, 64, "fp16"), [GlobalTile("X", *a, 128, 64)])
            s.emit("IN", "copy", LocalTile("l1", 64, 128, "fp16"), [GlobalTile("X", *b, 64, 128)])
        s.emit("OUT", "copy", GlobalTile("Y", row * 128, col * 128, 128, 128), [LocalTile("ub", 128, 128, "fp16")])
    arrays = tuple(GlobalArray(name, 16384, 16384, "fp16") for name in "XY")
    return Program(arrays, (Kernel("k", (CoreGroup(0, cores, (s.finish(),)),), kernel(()).buffers),), ("X",), "Y")


def executed(prog, dev):
    """(instructions that the engine executed one by one, timing)."""
    with engine_clock() as spent:
        timing = run(prog, dev)
    return spent.instructions, timing


def test_a_hundred_thousand_transfers_of_132_cores():
    dev = device(cores=132, l2={"capacity_bytes": 50 << 20, "bytes_per_second": 5e9})
    count, timing = executed(gemm_traffic(132, 200, 256), dev)
    assert timing.instructions == 132 * count and count == 2 * 200 * 256 + 200
    assert timing.traffic_bytes["L2 read"] == 132 * 200 * 256 * 2 * 16384


def test_repeats_cost_nothing():
    prog = program(kernel((load("X", 64, 64, repeat=10_000), store("Y", 64, 64))))
    count, timing = executed(prog, device())
    assert timing.traffic_bytes["GM_L1"] == 10_000 * 8192 and count == 2
