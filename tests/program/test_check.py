"""The checker: one program that keeps every rule, and for each rule that program with the rule broken."""

import json
from dataclasses import replace

import pytest
from work import calls

from hwsim.devices import load
from hwsim.errors import ProgramError
from hwsim.program.builder import KernelBuilder, StreamBuilder
from hwsim.program.check import check
from hwsim.program.ir import (
    CORE,
    Advance,
    Affine,
    CoreGroup,
    GlobalArray,
    GlobalTile,
    Instr,
    Kernel,
    LocalTile,
    Loop,
    Program,
    Stream,
    Sync,
    variable,
)

UNIT = "mmad.m16n16k16.f32.f16.f16"
DEVICE = load("ascend910a")
BLOCK = 64


def gemm(steps=100, slots=2, cores=4, **more):
    """C = A B for one 64 x 64 block per core: rings through L1 and L0, one result through UB."""
    kernel, s = KernelBuilder("gemm"), StreamBuilder("main")
    rings = {
        name: kernel.ring(name, memory, slots, BLOCK * BLOCK * 2)
        for name, memory in (("A1", "L1"), ("B1", "L1"), ("A0", "L0A"), ("B0", "L0B"))
    }
    kernel.buffer("C0", "L0C", 1, BLOCK * BLOCK * 4)
    kernel.buffer("CU", "UB", 1, BLOCK * BLOCK * 4)
    product, copied = kernel.semaphore("product"), kernel.semaphore("copied")
    c0, cu = (LocalTile(name, BLOCK, BLOCK, "fp32") for name in ("C0", "CU"))
    row = variable(CORE) * BLOCK
    with s.loop("k", steps) as (loop, k):
        for name in "AB":
            first, second = rings[f"{name}1"], rings[f"{name}0"]
            where = (row, k * BLOCK) if name == "A" else (k * BLOCK, Affine())
            s.emit(
                "MTE2",
                "copy",
                first.tile("push", BLOCK, BLOCK, "fp16"),
                [GlobalTile(name, *where, BLOCK, BLOCK)],
                [first.free],
                [first.full],
                label=f"load {name}",
            )
            s.emit(
                "MTE1",
                "copy",
                second.tile("push", BLOCK, BLOCK, "fp16"),
                [first.tile("pop", BLOCK, BLOCK, "fp16")],
                [first.full, second.free],
                [first.free, second.full],
                label=f"feed {name}",
            )
            s.pushed(first)
            s.popped(first)
            s.pushed(second)
        operands = [rings[name].tile("pop", BLOCK, BLOCK, "fp16") for name in ("A0", "B0")]
        s.emit(
            "M",
            "mma",
            c0,
            operands,
            [rings["A0"].full, rings["B0"].full],
            [rings["A0"].free, rings["B0"].free],
            unit=UNIT,
            zero_at=(loop,),
        )
        s.popped(rings["A0"])
        s.popped(rings["B0"])
    s.emit("M", "sync", signals=[product])
    s.emit("V", "copy", cu, [c0], [product], [copied], label="out")
    s.emit("MTE3", "copy", GlobalTile("C", row, Affine(), BLOCK, BLOCK), [cu], [copied], label="store")
    kernel.group(0, cores, s)
    arrays = (
        GlobalArray("A", cores * BLOCK, steps * BLOCK, "fp16"),
        GlobalArray("B", steps * BLOCK, BLOCK, "fp16"),
        GlobalArray("C", cores * BLOCK, BLOCK, "fp32"),
    )
    return Program(arrays, (kernel.finish(),), ("A", "B"), "C")


def changed(program, change):
    """The program with `change` applied to every instruction (by label, or opcode where it has none)."""

    def body(nodes):
        return tuple(
            replace(node, body=body(node.body))
            if isinstance(node, Loop)
            else change(node.label or node.opcode, node)
            if isinstance(node, Instr)
            else node
            for node in nodes
        )

    kernel = program.kernels[0]
    groups = tuple(replace(g, streams=tuple(replace(s, body=body(s.body)) for s in g.streams)) for g in kernel.groups)
    return replace(program, kernels=(replace(kernel, groups=groups),))


def only(name, **fields):
    """A change of the instruction called `name`."""
    return lambda label, instr: (
        replace(instr, **{k: v(instr) if callable(v) else v for k, v in fields.items()}) if label == name else instr
    )


def kernel_with(program, **fields):
    return replace(program, kernels=(replace(program.kernels[0], **fields),))


def buffer_with(program, which, **fields):
    kernel = program.kernels[0]
    return kernel_with(program, buffers=tuple(replace(b, **fields) if b.name == which else b for b in kernel.buffers))


def refused(program, *words):
    with pytest.raises(ProgramError) as error:
        check(program, DEVICE)
    for word in words:
        assert word in str(error.value), str(error.value)


# --- a program that keeps every rule --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "steps, slots, cores", [(1, 1, 1), (2, 2, 1), (3, 2, 32), (100, 2, 4), (100, 1, 4), (67, 3, 2), (5000, 4, 32)]
)
def test_good_program_passes(steps, slots, cores):
    check(gemm(steps, slots, cores), DEVICE)


def test_counts_of_loops_do_not_matter_to_the_check():
    program = gemm(1_000_000, 4, 32)
    assert calls(lambda: check(program, DEVICE)) < 2000  # 628; one for every round of a loop would be a million


# --- capacity, alignment, names -------------------------------------------------------------------------------


def test_capacity():
    most = 65536 // 8192
    check(gemm(slots=most), DEVICE)
    refused(gemm(slots=most + 1), "kernel 'gemm'", "L0A", "73728 bytes", "A0 9 x 8192", "65536")


def test_unknown_memory_names_the_nearest():
    refused(buffer_with(gemm(), "A0", memory="LOA"), "'A0'", "'LOA'", "did you mean 'L0A'")


def test_alignment_of_slots():
    check(buffer_with(gemm(), "A0", slot_bytes=8192 + 512), DEVICE)
    refused(buffer_with(gemm(), "A0", slot_bytes=8192 + 256), "'A0'", "8448", "multiple of 512")


def test_buffers_need_slots_and_names_of_their_own():
    refused(buffer_with(gemm(), "A0", slots=0), "'A0'", "0 slots")
    refused(buffer_with(gemm(), "B1", name="A1"), "two buffers", "'A1'")


def test_unknown_names_in_instructions():
    refused(changed(gemm(), only("load B", engine="MTE4")), "load B", "no engine 'MTE4'", "MTE2")
    refused(changed(gemm(), only("out", waits=(Sync("prodct"),))), "'out' on V", "'prodct'", "product")
    refused(changed(gemm(), only("out", writes=(LocalTile("CX", 64, 64, "fp32"),))), "no buffer 'CX'")
    refused(changed(gemm(), only("load A", reads=(GlobalTile("Q", Affine(), Affine(), 64, 64),))), "no array 'Q'")
    refused(changed(gemm(), only("out", waits=(Sync("product", 0),))), "counts are at least 1")
    refused(changed(gemm(), only("mma", repeat=0)), "repeat is 0")


# --- tiles ----------------------------------------------------------------------------------------------------


def test_tile_larger_than_its_slot():
    tall = [(LocalTile(name, 65, 64, "fp32"),) for name in ("CU", "C0")]
    refused(
        changed(gemm(), only("out", writes=tall[0], reads=tall[1])),
        "instruction 6",
        "'out' on V",
        "65 x 64 fp32",
        "'CU'",
        "16640",
        "16384",
    )
    part = LocalTile("CU", 64, 64, "fp32").part(1, 63)
    source = LocalTile("C0", 64, 64, "fp32").part(1, 63)
    check(changed(gemm(), only("out", writes=(part,), reads=(source,))), DEVICE)
    refused(changed(gemm(), only("out", writes=(replace(part, row=2),), reads=(source,))), "reaches 16640 bytes")
    refused(changed(gemm(), only("out", writes=(replace(part, row=-1),))), "negative")
    refused(changed(gemm(), only("out", writes=(replace(part, col=1),))), "rows have 64")


def _message(program):
    with pytest.raises(ProgramError) as error:
        check(program, DEVICE)
    return str(error.value)


@pytest.mark.parametrize(
    "name, fields",
    [
        ("mma", {"unit": "mmad.m16n16k16.f32.f16.bf16"}),
        ("mma", {"waits": (Sync("nothing"),)}),
        ("mma", {"zero_at": ("elsewhere",)}),
        ("mma", {"scale_exponent": 1}),
        ("mma", {"reads": lambda i: (replace(i.reads[0], cols=32), i.reads[1])}),
        ("mma", {"reads": lambda i: (replace(i.reads[0], buffer="A1"), i.reads[1])}),
        ("mma", {"reads": lambda i: (replace(i.reads[0], buffer="none"), i.reads[1])}),
        ("load A", {"repeat": 0}),
        ("load A", {"multicast": 0}),
        ("load A", {"engine": "MTE1"}),
        ("load A", {"reads": lambda i: (replace(i.reads[0], array="C"),)}),
        ("load A", {"reads": lambda i: (replace(i.reads[0], array="none"),)}),
        ("load A", {"reads": lambda i: (replace(i.reads[0], row=i.reads[0].row + 1),)}),
        ("load A", {"writes": lambda i: (replace(i.writes[0], row=1),)}),
        ("store", {"reads": lambda i: (replace(i.reads[0], format="fp16"),)}),
    ],
)
def test_a_kernel_that_keeps_a_rule_does_not_hide_one_that_breaks_it(name, fields):
    good, broken = gemm(), changed(gemm(), only(name, **fields))
    alone = _message(broken)
    assert _message(replace(good, kernels=(good.kernels[0], broken.kernels[0]))) == alone


@pytest.mark.parametrize("buffer", ["A1", "A0", "C0", "CU"])
def test_a_kernel_with_large_slots_does_not_hide_one_with_small_slots(buffer):
    good, broken = gemm(), buffer_with(gemm(), buffer, slot_bytes=BLOCK * BLOCK)
    alone = _message(broken)
    assert "reaches" in alone
    assert _message(replace(good, kernels=(good.kernels[0], broken.kernels[0]))) == alone


def test_fractals_count_against_a_slot_of_the_cube_but_not_of_the_vector_unit():
    whole = gemm(1)
    tiles = [
        tile
        for node in whole.kernels[0].groups[0].streams[0].body[0].body
        if getattr(node, "label", "") == "feed A"
        for tile in (*node.writes, *node.reads)
    ]
    feed = changed(whole, only("feed A", writes=(replace(tiles[0], rows=33),), reads=(replace(tiles[1], rows=33),)))
    check(feed, DEVICE)
    refused(buffer_with(feed, "A0", slot_bytes=5 * 1024), "33 x 64 fp16", "reaches 6144 bytes", "5120")  # 48 rows
    out = changed(whole, only("out", opcode="fill", writes=(LocalTile("CU", 33, 64, "fp32"),), reads=()))
    store = changed(
        out, only("store", writes=lambda i: (replace(i.writes[0], rows=33),), reads=(LocalTile("CU", 33, 64, "fp32"),))
    )
    check(buffer_with(store, "CU", slot_bytes=33 * 256), DEVICE)
    refused(buffer_with(store, "CU", slot_bytes=33 * 256 - 32), "33 x 64 fp32", "reaches 8448 bytes")


def test_global_tile_out_of_bounds_at_the_extremes_of_its_loops():
    arrays = gemm().arrays
    short = replace(gemm(), arrays=(replace(arrays[0], cols=6399), *arrays[1:]))
    refused(short, "'load A' on MTE2", "columns 0 to 6399 of array 'A', which has 6399")
    fewer = replace(gemm(), arrays=(replace(arrays[0], rows=255), *arrays[1:]))
    refused(fewer, "rows 0 to 255 of array 'A', which has 255")  # the last core's
    before = changed(gemm(), only("load B", reads=lambda i: (replace(i.reads[0], row=i.reads[0].row + -1),)))
    refused(before, "'load B'", "rows -1 to 6398 of array 'B'")


def test_variable_of_a_loop_that_is_not_around():
    name = gemm().kernels[0].groups[0].streams[0].body[0].name
    bad = changed(gemm(), only("store", writes=lambda i: (replace(i.writes[0], col=variable(name)),)))
    refused(bad, "'store' on MTE3", f"loop '{name}'")


def test_empty_tile():
    refused(changed(gemm(), only("out", writes=(LocalTile("CU", 0, 64, "fp32"),))), "0 x 64", "empty")


# --- mma ------------------------------------------------------------------------------------------------------


def test_mma_unit_shape_formats_memories():
    a0, b0, c0 = LocalTile("A0", 64, 64, "fp16"), LocalTile("B0", 64, 64, "fp16"), LocalTile("C0", 64, 64, "fp32")
    check(changed(gemm(1), only("mma", reads=(replace(a0, cols=17), replace(b0, rows=17)))), DEVICE)
    refused(changed(gemm(), only("mma", unit="mmad.m16n16k16.f32.f16")), "no instruction", "did you mean")
    refused(changed(gemm(), only("mma", unit=None)), "no instruction")
    refused(changed(gemm(), only("mma", reads=(replace(a0, cols=17), b0))), "mma on M", "A 64 x 17, B 64 x 64", "m x k")
    refused(changed(gemm(), only("mma", reads=(replace(a0, format="bf16"), b0))), "A is bf16", "takes fp16")
    refused(changed(gemm(), only("mma", writes=(replace(c0, format="fp16"),))), "C is fp16", "takes fp32")
    refused(changed(gemm(), only("mma", reads=(replace(a0, buffer="B0"), b0))), "A lies in L0B", "from L0A")
    refused(changed(gemm(), only("mma", engine="V")), "runs on engine M")
    refused(changed(gemm(), only("mma", zero_at=("nowhere",))), "zero_at names 'nowhere'")
    refused(changed(gemm(), only("mma", reads=(a0,))), "reads 1 tiles", "reads 2")


def test_mma_beyond_the_largest():
    values = DEVICE.model_dump(by_alias=True)
    for largest, fits in ((64, True), (63, False)):
        values["instructions"][UNIT]["largest"] = largest
        device = type(DEVICE).model_validate_json(json.dumps(values))
        if fits:
            check(gemm(), device)
        else:
            with pytest.raises(ProgramError, match=r"mma on M: m, n, k = 64, 64, 64; .* at most 63"):
                check(gemm(), device)


# --- copies and elementwise operations ------------------------------------------------------------------------


def test_copy_needs_a_link_equal_shapes_and_formats():
    refused(changed(gemm(), only("store", engine="MTE2")), "'store' on MTE2", "no link from UB to GM", "GM to L1")
    refused(changed(gemm(), only("feed A", writes=lambda i: (replace(i.writes[0], rows=32),))), "64 x 64 to 32 x 64")
    refused(changed(gemm(), only("out", writes=(LocalTile("CU", 64, 64, "fp16"),))), "fp32 to fp16", "use cast")


def test_elementwise_rules():
    def out(opcode, reads, **more):
        tile = LocalTile("CU", 64, 64, "fp32")
        new = {"opcode": opcode, "writes": (tile,), "reads": tuple(replace(tile, **r) for r in reads), **more}
        return changed(gemm(1), only("out", **new))

    check(out("add", [{}, {}]), DEVICE)
    check(out("fill", []), DEVICE)
    check(out("cast", [{"format": "fp16"}]), DEVICE)
    refused(out("add", [{}, {"rows": 32}]), "add 'out' on V", "tiles of 32 x 64 and 64 x 64")
    refused(out("add", [{}, {"buffer": "C0"}]), "lies in L0C", "works on UB")
    refused(
        out("add", [{}, {"format": "fp16"}]),
        "a tile is fp16",
        "takes fp32, fp64, int32 or int64, and all its tiles one",
    )
    refused(out("add", [{}, {"format": "int32"}]), "a tile is int32", "all its tiles one")
    whole = replace(LocalTile("CU", 64, 64, "fp32"), format="int32")
    refused(out("add", [{}, {}], writes=(whole,)), "a tile is fp32", "all its tiles one")
    check(out("add", [{"format": "int32"}, {"format": "int32"}], writes=(whole,)), DEVICE)
    refused(out("mul", [{"format": "int32"}, {}]), "a tile is int32", "mul takes fp32 or fp64, and all its tiles one")
    refused(out("add", [{}, {}], engine="MTE1"), "no vector unit")
    refused(out("add", [{}]), "reads 1 tiles")
    check(out("fma", [{}, {}], scalar=2.0), DEVICE)
    refused(out("fma", [{}, {"format": "fp16"}]), "a tile is fp16", "fma takes fp32, fp64, int32 or int64, and all")
    refused(out("fma", [{}]), "reads 1 tiles")
    refused(out("cast", [{}], writes=(replace(whole, rows=32, format="int64"),)), "tiles of 64 x 64 and 32 x 64")
    small = replace(whole, rows=16)
    refused(out("cast", [{"rows": 16}], writes=(replace(small, format="int64"),)), "casts fp32 to int64")
    for scalar in (0.5, float("nan")):
        refused(out("fill", [], writes=(whole,), scalar=scalar), f"the scalar is {scalar}", "a whole number")
    refused(out("add", [{}, {"cols": 32, "col": 32}]), "columns 32 to 63 of a slot of 'CU', whose rows have 32")
    check(out("add_row", [{}, {"rows": 1}]), DEVICE)
    refused(out("add_row", [{}, {}]), "tiles of 64 x 64 and 64 x 64")
    refused(out("add_row", [{"rows": 1}, {"rows": 1}]), "tiles of 1 x 64 and 64 x 64")


# --- cores and loops ------------------------------------------------------------------------------------------


def test_cores():
    check(gemm(cores=32), DEVICE)
    refused(gemm(cores=33), "cores 0 to 32", "32 of ascend910a")
    kernel = gemm().kernels[0]
    group = kernel.groups[0]
    apart = kernel_with(gemm(cores=6), groups=(group, replace(group, first=4, count=2)))
    check(apart, DEVICE)
    refused(kernel_with(gemm(cores=6), groups=(group, replace(group, first=3, count=2))), "cores 3 to 4 overlap")


def test_loops():
    stream = gemm(4).kernels[0].groups[0].streams[0]
    loop = stream.body[0]

    def with_body(*body):
        return kernel_with(gemm(4), groups=(CoreGroup(0, 4, (Stream("main", body),)),))

    check(with_body(*stream.body), DEVICE)
    refused(with_body(loop, *stream.body), "two loops", loop.name)
    refused(with_body(replace(loop, count=-1), *stream.body[1:]), "count -1")
    refused(with_body(Advance(loop.name), *stream.body), "is advanced, and is a loop")


# --- order ----------------------------------------------------------------------------------------------------


def without(what, name):
    """The good program in which the instruction `name` has lost its waits or signals of a semaphore."""

    def change(semaphore, program=None):
        return changed(
            program or gemm(),
            lambda label, i: (
                replace(i, **{what: tuple(s for s in getattr(i, what) if s.semaphore != semaphore)})
                if label == name
                else i
            ),
        )

    return change


def test_leak():
    refused(without("waits", "out")("product"), "semaphore 'product' leaks", "1 signalled, 0 awaited")
    refused(without("signals", "mma")("A0.free"), "'A0.free' leaks", "0 signalled, 100 awaited")


def test_leak_far_beyond_the_instructions_executed():
    refused(without("waits", "out")("product", gemm(1_000_000)), "semaphore 'product' leaks")


def swap(program, name, waits=None, signals=None):
    return changed(
        program,
        lambda label, i: replace(i, waits=waits or i.waits, signals=signals or i.signals) if label == name else i,
    )


def test_deadlock():
    circle = swap(gemm(), "load A", (Sync("A1.free"), Sync("copied")), (Sync("A1.full"), Sync("copied")))
    refused(circle, "deadlock", "instruction 0", "'load A' on MTE2", "'copied': has 0, needs 1")


def test_deadlock_behind_a_full_queue():
    def queue(length):
        body = (*[Instr("V", "sync", waits=(Sync("go"),))] * length, Instr("M", "sync", signals=(Sync("go", length),)))
        kernel = KernelBuilder("k")
        kernel.semaphore("go")
        built = kernel.finish()
        return Program((), (replace(built, groups=(CoreGroup(0, 1, (Stream("s", body),)),)),), (), "")

    depth = DEVICE.engines["V"].queue_depth
    check(queue(depth), DEVICE)
    refused(queue(depth + 1), "deadlock", "'go': has 0")


@pytest.mark.parametrize(
    "name, what, semaphore, words",
    [
        ("feed A", "waits", "A1.full", ("'feed A' on MTE1", "reads", "buffer 'A1'", "'load A' on MTE2", "writes")),
        ("load A", "waits", "A1.free", ("'load A' on MTE2", "writes", "buffer 'A1'", "'feed A' on MTE1")),
        ("mma", "waits", "B0.full", ("mma on M", "buffer 'B0'", "'feed B' on MTE1")),
        ("out", "waits", "product", ("'out' on V", "reads", "buffer 'C0'", "mma on M")),
        ("store", "waits", "copied", ("'store' on MTE3", "reads", "buffer 'CU'", "'out' on V")),
    ],
)
@pytest.mark.parametrize("steps", [5, 10_000])
def test_unordered_accesses(name, what, semaphore, words, steps):
    """The wait moves to a sync on the scalar engine: no leak, but no order either."""
    program = gemm(steps)
    aside = Instr("S", "sync", waits=(Sync(semaphore),))

    def body(nodes):
        for node in nodes:
            if isinstance(node, Loop):
                yield replace(node, body=tuple(body(node.body)))
            elif isinstance(node, Instr) and (node.label or node.opcode) == name:
                yield replace(node, waits=tuple(w for w in node.waits if w.semaphore != semaphore))
                yield aside
            else:
                yield node

    group = program.kernels[0].groups[0]
    stream = replace(group.streams[0], body=tuple(body(group.streams[0].body)))
    refused(kernel_with(program, groups=(replace(group, streams=(stream,)),)), *words)


def test_one_slot_too_few_is_seen_only_if_the_ring_says_more_than_it_has():
    check(buffer_with(gemm(), "A0", slots=4), DEVICE)  # more slots than tokens: wasteful, not wrong
    refused(buffer_with(gemm(), "A0", slots=1), "buffer 'A0'", "no semaphore orders")


def test_parts_of_a_slot_are_apart():
    kernel = KernelBuilder("k")
    kernel.buffer("u", "UB", 1, 64 * 64 * 4)
    whole = LocalTile("u", 64, 64, "fp32")

    def program(first, second):
        s = StreamBuilder("s")
        s.emit("V", "fill", first, label="top")
        s.emit("MTE3", "copy", GlobalTile("C", Affine(), Affine(), second.rows, 64), [second], label="bottom")
        built = replace(kernel.finish(), groups=(CoreGroup(0, 1, (s.finish(),)),))
        return Program((GlobalArray("C", 64, 64, "fp32"),), (built,), (), "C")

    check(program(whole.part(0, 32), whole.part(32, 32)), DEVICE)
    refused(program(whole.part(0, 33), whole.part(32, 32)), "'bottom' on MTE3", "slot 0 of buffer 'u'", "'top' on V")


def test_global_array_written_and_read_back_needs_order():
    def program(ordered):
        kernel, s = KernelBuilder("k"), StreamBuilder("s")
        kernel.buffer("u", "UB", 2, 64 * 64 * 4)
        done = kernel.semaphore("done")
        c = GlobalTile("C", Affine(), Affine(), 64, 64)
        s.emit("MTE3", "copy", c, [LocalTile("u", 64, 64, "fp32")], signals=[done], label="write")
        if not ordered:
            s.emit("S", "sync", waits=[done])
        s.emit(
            "MTE2",
            "copy",
            LocalTile("u", 64, 64, "fp32", Affine(1)),
            [c],
            waits=[done] if ordered else [],
            label="read",
        )
        kernel.group(0, 1, s)
        return Program((GlobalArray("C", 64, 64, "fp32"),), (kernel.finish(),), (), "C")

    check(program(True), DEVICE)
    refused(program(False), "'write' on MTE3 writes array 'C'", "'read' on MTE2, reads")


def test_order_carries_over_a_third_engine():
    """MTE3 reads what M wrote and V only waited for: ordered through V, and not without V's wait."""

    def program(through):
        kernel, s = KernelBuilder("k"), StreamBuilder("s")
        kernel.buffer("u", "UB", 1, 1024)
        first, second = kernel.semaphore("first"), kernel.semaphore("second")
        s.emit(
            "MTE2",
            "copy",
            LocalTile("u", 16, 16, "fp32"),
            [GlobalTile("C", Affine(), Affine(), 16, 16)],
            signals=[first],
            label="in",
        )
        s.emit("V" if through else "S", "sync", waits=[first])
        s.emit("V", "sync", signals=[second])
        s.emit(
            "MTE3",
            "copy",
            GlobalTile("D", Affine(), Affine(), 16, 16),
            [LocalTile("u", 16, 16, "fp32")],
            waits=[second],
            label="out",
        )
        kernel.group(0, 1, s)
        arrays = (GlobalArray("C", 16, 16, "fp32"), GlobalArray("D", 16, 16, "fp32"))
        return Program(arrays, (kernel.finish(),), ("C",), "D")

    check(program(True), DEVICE)
    refused(program(False), "slot 0 of buffer 'u'", "'in' on MTE2", "'out' on MTE3")


def test_shortened_loops_do_not_invent_conflicts():
    """A buffer of 44 slots filled once and used by every column, its base moved on by 44: legal, and hard to cut."""
    kernel, s = KernelBuilder("k"), StreamBuilder("s")
    kernel.buffer("A", "L1", 44, 16 * 16 * 2)
    kernel.semaphore("A.free", 44)
    kernel.semaphore("A.full")
    kernel.buffer("L", "L0A", 1, 512)
    kernel.semaphore("L.free", 1)
    kernel.semaphore("L.full")
    with s.loop("group", 9):
        with s.loop("k", 44) as (_, k):
            slot = LocalTile("A", 16, 16, "fp16", variable("base") + k)
            source = GlobalTile("A", Affine(), k * 16, 16, 16)
            s.emit("MTE2", "copy", slot, [source], [Sync("A.free")], [Sync("A.full")])
            s.emit(
                "MTE1",
                "copy",
                LocalTile("L", 16, 16, "fp16"),
                [slot],
                [Sync("A.full"), Sync("L.free")],
                [Sync("A.free"), Sync("L.full")],
            )
            s.emit("M", "sync", waits=[Sync("L.full")], signals=[Sync("L.free")])
        s.advance("base", 44)
    kernel.group(0, 1, s)
    check(Program((GlobalArray("A", 16, 704, "fp16"),), (kernel.finish(),), (), ""), DEVICE)


def test_kernel_without_cores():
    refused(Program((), (Kernel("nothing", ()),), (), ""), "kernel 'nothing'", "no core")
