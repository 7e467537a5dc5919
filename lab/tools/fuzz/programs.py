"""Programs of random devices, schemes, sizes and tiles: what the checker accepts has one result in every legal order.

python lab/tools/fuzz/programs.py [--count 2000] [--first 0] [--log FILE]

A program is made for a device whose numbers of cores and sizes of memories are drawn; in some, from number 20,000 on,
CTAs share the K of tiles; in some, from number 40,000 on, there are alpha, beta, C, a bias, another output format. From
number 60,000 on all families and all schemes are as frequent, and sizes are small. A program must fit its memories,
end, and give by the functional machine the bits of the direct evaluator; the machine that executes one instruction at a
time must give them in 10 random orders (each hundredth case: in 100). Then the program is damaged: a wait removed, a
signal given to another semaphore, a count changed, a slot or bytes taken from a buffer. The checker refuses it, or all
that holds for a program holds for it too.
"""

import itertools
import random
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from unittest.mock import patch

import campaign
import numpy as np
from devices import full

import hwsim
from hwsim.api import program as make_program
from hwsim.backend.cpu import CPU
from hwsim.devices.registry import shipped
from hwsim.errors import HwsimError, ProgramError, UnsupportedError
from hwsim.formats import format_of
from hwsim.gemm.schedule import Schedule
from hwsim.gemm.summation import Chain, Range, Reduction, Region
from hwsim.machines import functional, reference, timing
from hwsim.program.check import check
from hwsim.program.ir import Instr, Loop
from hwsim.schemes import schemes

NAMES = shipped()
ORDERS, MANY_ORDERS = 10, 100
#: Why a program is refused once the operands are known: infinities, or other plans, whose tiles may not fit.
REFUSED_OPERANDS = ("infinity or a NaN", "need other plans", "no tile")
DAMAGES = 3
FIRST_SHARED = 20_000  # numbers below it were campaigns' before tiles were shared, and mean the same as then
FIRST_EPILOGUE = 40_000  # the same, of epilogues
FIRST_SMALL = 60_000  # the same, of small sizes
LARGEST_STEPS, LARGEST_MACS = 1_000, 3_000_000  # of a program that is executed one instruction at a time
SPECIALS = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 3.4e38, 65504.0, 2.0**-24)


@cache
def families():
    """The shipped devices of each family that has programs."""
    found = {}
    for name in NAMES:
        found.setdefault(hwsim.device(name).family, []).append(name)
    return [found[family] for family in sorted(filter(None, found))]


def drawn_device(rng, names):
    """One of these devices with a few cores, its memories up to four times smaller or twice as large."""
    tree = full(rng.choice(names))
    tree["sources"]["DRAWN"] = "at random"
    told = {"source": "DRAWN", "evidence": "assumption"}
    tree["cores"] = {"value": rng.choice((1, 2, 3, 4)), **told}
    tree.pop("cores_per_cluster", None)
    for memory in tree["memories"].values():
        capacity = memory["capacity_bytes"]
        if rng.random() < 0.4:
            size = capacity["value"] if isinstance(capacity, dict) else capacity
            memory["capacity_bytes"] = {"value": int(size * rng.choice((0.25, 0.5, 0.75, 1.5, 2))), **told}
    return hwsim.device(tree)


def request(rng, device):
    """Sizes and options."""
    given = {"scheme": "native" if rng.random() < 0.4 else rng.choice(sorted(schemes()))}
    if given["scheme"] == "native" and device.native and rng.random() < 0.8:
        given["format"] = rng.choice(sorted(device.native))
    m, n = (rng.choice((1, 3, 16, 17, 33, 50)) for _ in "mn")
    k = rng.choice((1, 3, 16, 33, 67, 100, 160))
    if rng.random() < 0.7:
        given["tile"] = {name: rng.choice((8, 16, 32, 48, 64)) for name in "mnk"}
    for name, values in (
        ("split_k", (1, 2, 3)),
        ("stages", (1, 2, 3)),
        ("buffering", ("single", "double")),
        ("a_layout", ("rows", "columns")),
    ):
        if rng.random() < 0.25:
            given[name] = rng.choice(values)
    return (m, n, k), given


def small_request(rng, device):
    """Small sizes, and options; each scheme as frequent as the others."""
    given = {"scheme": rng.choice(sorted(schemes()))}
    if given["scheme"] == "native" and device.native:
        given["format"] = rng.choice(sorted(device.native))
    m, n = (rng.choice((1, 3, 9, 16, 17, 24)) for _ in "mn")
    k = rng.choice((1, 3, 16, 20, 33, 48))
    if rng.random() < 0.5:
        given["tile"] = {name: rng.choice((8, 16, 32)) for name in "mnk"}
    for name, values in (
        ("split_k", (2, 3)),
        ("stages", (1, 2)),
        ("buffering", ("single", "double")),
        ("a_layout", ("rows", "columns")),
        ("b_layout", ("rows", "columns")),
    ):
        if rng.random() < 0.2:
            given[name] = rng.choice(values)
    return (m, n, k), given


def shared(rng, device, sizes, given):
    """Options of a product in which CTAs share the K of some tiles, as many as the device's cores can; or None."""
    (m, n, k), tile = sizes, given.get("tile")
    if given["scheme"] != "native" or tile is None or device.cores < 2 or k < 2 or rng.random() < 0.5:
        return None
    parts = rng.randint(2, min(device.cores, k))
    cuts = [0, *sorted(rng.sample(range(1, k), parts - 1)), k]
    chains = [Chain((Range(start, stop),)) for start, stop in itertools.pairwise(cuts)]
    total = Reduction(tuple(rng.sample(chains, parts)), "pairwise", level="workspace")
    places = [(row, col) for row in range(0, m, tile["m"]) for col in range(0, n, tile["n"])]
    chosen = rng.sample(places, min(len(places), rng.randint(1, device.cores // parts)))
    regions = [
        Region(Range(row, min(m, row + tile["m"])), Range(col, min(n, col + tile["n"])), total) for row, col in chosen
    ]
    kept = {name: value for name, value in given.items() if name != "split_k"}
    return {**kept, "schedule": Schedule(regions=tuple(regions))}


def epilogue(number, sizes):
    """Options of an epilogue, with C and a bias."""
    rng, data, (m, n, _) = random.Random(f"epilogue {number}"), np.random.default_rng([number, 1]), sizes
    given = {}
    if rng.random() < 0.6:
        given["alpha"] = rng.choice((0.75, -1.0, 0.1, 3.0))
    if rng.random() < 0.6:
        given |= {"c": with_specials(data, (m, n), number), "beta": rng.choice((1.0, -0.3, 2.0, 1e-3))}
    if rng.random() < 0.4:
        given["bias"] = with_specials(data, (n,), number)
    if rng.random() < 0.3:
        given["output"] = rng.choice(("fp16", "bf16", "fp32"))
    return given


def nodes(body):
    for node in body:
        yield node
        if isinstance(node, Loop):
            yield from nodes(node.body)


def work(program):
    """(instructions, multiply-adds) that all cores execute."""
    steps = macs = 0
    for kernel in program.kernels:
        for group in kernel.groups:
            for stream in group.streams:
                stack = [(stream.body, group.count)]
                while stack:
                    body, times = stack.pop()
                    for node in body:
                        if isinstance(node, Loop):
                            stack.append((node.body, times * node.count))
                        elif isinstance(node, Instr):
                            steps += times * node.repeat
                            if node.opcode == "mma":
                                a, b = node.reads[:2]
                                macs += times * node.repeat * a.rows * a.cols * b.cols
    return steps, macs


def assert_fits(program, device):
    """The buffers of each kernel lie in the memories of one core."""
    for kernel in program.kernels:
        used = Counter()
        for buffer in kernel.buffers:
            used[buffer.memory] += buffer.slots * buffer.slot_bytes // buffer.spread - buffer.spilled
        for memory, size in used.items():
            assert size <= device.memories[memory].capacity_bytes, f"{memory}: {size} bytes"


def holds(program, device, inputs, expected, orders):
    """Raise unless a program ends and has these bits, by every machine and in every one of these orders."""
    assert_fits(program, device)
    if timing.missing(device, program) is None:
        timing.run(program, device)
    got = functional.run(program, device, inputs)
    assert got.tobytes() == expected.tobytes(), "the functional machine has other bits"
    for order in orders:
        got = reference.run(program, device, inputs, order=order, dots=CPU.gemm)
        assert got.tobytes() == expected.tobytes(), f"other bits in the order {order}"


@contextmanager
def recorded_executions():
    """The programs that the functional machine executes meanwhile, with their inputs and outputs."""
    execute, found = functional.run, []

    def recording(program, device, inputs, **given):
        copies = {name: np.array(codes) for name, codes in inputs.items()}
        output = execute(program, device, inputs, **given)
        found.append((program, copies, np.array(output)))
        return output

    with patch.object(functional, "run", recording):
        yield found


def changed(rng, program):
    """(what was done, the program with one instruction or buffer damaged), or None where there is nothing to damage."""
    at = rng.randrange(len(program.kernels))
    kernel = program.kernels[at]
    kind = rng.choice(("wait", "wait", "signal", "signal", "count", "slots", "bytes"))
    if kind in ("slots", "bytes"):
        if not kernel.buffers:
            return None
        i = rng.randrange(len(kernel.buffers))
        one = kernel.buffers[i]
        if kind == "slots":
            if one.slots == 1:
                return None
            other = replace(one, slots=one.slots - 1)
        else:
            other = replace(one, slot_bytes=max(1, one.slot_bytes // rng.choice((2, 3)) // 64 * 64))
        buffers = (*kernel.buffers[:i], other, *kernel.buffers[i + 1 :])
        made = replace(kernel, buffers=buffers)
    else:
        field = "signals" if kind == "signal" else "waits" if kind == "wait" else rng.choice(("waits", "signals"))
        found = {id(x): x for g in kernel.groups for s in g.streams for x in nodes(s.body) if isinstance(x, Instr)}
        able = [x for x in found.values() if getattr(x, field)]
        if not able:
            return None
        one = rng.choice(able)
        syncs = list(getattr(one, field))
        i = rng.randrange(len(syncs))
        if kind == "wait":
            del syncs[i]
        elif kind == "signal":
            syncs[i] = replace(syncs[i], semaphore=rng.choice(kernel.semaphores).name)
        else:
            syncs[i] = replace(syncs[i], count=syncs[i].count + rng.choice((-1, 1)))
        other = replace(one, **{field: tuple(syncs)})

        def body(old):
            return tuple(
                replace(x, body=body(x.body)) if isinstance(x, Loop) else other if x is one else x for x in old
            )

        groups = tuple(
            replace(g, streams=tuple(replace(s, body=body(s.body)) for s in g.streams)) for g in kernel.groups
        )
        made = replace(kernel, groups=groups)
    return kind, replace(program, kernels=(*program.kernels[:at], made, *program.kernels[at + 1 :]))


def with_specials(data, shape, number):
    """fp32 numbers; of each third number there are special values among them."""
    x = (data.standard_normal(shape) * 2.0 ** data.integers(-6, 6, shape)).astype(np.float32)
    if number % 3 == 0:
        with np.errstate(all="ignore"):
            x[data.random(shape) < 0.03] = data.choice(SPECIALS)
    return x


def operands(number, sizes):
    data = np.random.default_rng(number)
    return [with_specials(data, shape, number) for shape in (sizes[::2], sizes[:0:-1])]


def integers(number, sizes, fmt):
    """Operands of an integer format, of all its bits."""
    data, low, high = np.random.default_rng(number), -(1 << (fmt.bits - 1)) * fmt.signed, 1 << (fmt.bits - fmt.signed)
    return [data.integers(low, high, shape).astype(fmt.dtype_name) for shape in (sizes[::2], sizes[:0:-1])]


def case(number):
    """One program."""
    rng = random.Random(number)
    is_small = number >= FIRST_SMALL
    try:
        device = drawn_device(rng, rng.choice(families()) if is_small else NAMES)
    except HwsimError:
        return "no device"
    sizes, given = small_request(rng, device) if is_small else request(rng, device)
    m, n, k = sizes
    a, b = operands(number, sizes)
    if number >= FIRST_EPILOGUE:
        given |= epilogue(number, sizes)
    program, cut = None, None
    if number >= FIRST_SHARED:
        cut = shared(random.Random(f"shared tiles {number}"), device, sizes, given)
    if cut is not None:
        try:
            _, program = make_program(m=m, n=n, k=k, device=device, **cut)
            given = {"device": device, **cut}
        except HwsimError:
            pass
    for left_out in ((), ("split_k", "stages", "buffering"), ("tile", "split_k", "stages", "buffering")):
        if program is not None:
            break
        given = {"device": device} | {name: value for name, value in given.items() if name not in left_out}
        try:
            _, program = make_program(m=m, n=n, k=k, **given)
        except HwsimError:
            continue
    if program is None:
        return "refused"
    steps, macs = work(program)
    assert_fits(program, device)
    if steps > LARGEST_STEPS or macs > LARGEST_MACS:
        return "large"
    fmt = format_of(program.gemm.single.input_format)
    if fmt.is_integer:
        a, b = integers(number, sizes, fmt)
    try:
        direct = hwsim.run(a, b, threads=1, timing=False, **given)
    except HwsimError:
        return "operands refused"
    try:
        with recorded_executions() as executions:
            both = hwsim.run(a, b, threads=1, timing=False, functional=True, **given)
    except UnsupportedError as error:
        assert any(reason in str(error) for reason in REFUSED_OPERANDS), error
        return "operands refused by the program"
    assert direct.c.tobytes() == both.c.tobytes(), "bits differ between program and evaluator"
    ((program, inputs, expected),) = executions
    orders = MANY_ORDERS if number % 100 == 0 else ORDERS
    holds(program, device, inputs, expected, range(orders))
    words = set()
    for _ in range(DAMAGES):
        damaged = changed(rng, program)
        if damaged is None:
            continue
        _, other = damaged
        try:
            check(other, device)
        except ProgramError:
            words.add("caught")
            continue
        holds(other, device, inputs, expected, range(ORDERS))
        words.add("harmless")
    kind = "equal, tiles shared" if "schedule" in given else "equal"
    word = f"{kind}, damage {' and '.join(sorted(words))}" if words else kind
    if not is_small:
        return word
    reached = [("families", device.family, 1), ("schemes", given["scheme"], 1), ("orders", "executed", orders)]
    reached += [("options", name, 1) for name in ("c", "bias", "alpha", "output", "split_k") if name in given]
    return word, reached


if __name__ == "__main__":
    campaign.HANG_S = 60.0  # a hundred orders of the longest
    campaign.main("programs", case, __doc__.partition("\n")[0])
