"""Writes the microbenchmarks' arithmetic kernels: one per matrix instruction and setting, one per vector operation.

    python generate.py FOLDER        # arithmetic_0.cu .. arithmetic_{PARTS-1}.cu

Standard library only. Every kernel repeats its instruction in a loop of `iterations`; `library.py` runs it with two
counts, so that what lies outside the loop falls out of the difference. `WORK` says how many one iteration does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PARTS = 4
ALL_N = (8, 16, 32, 64, 96, 128, 192, 256)
SOME_N = (8, 32, 64, 128, 192, 256)

# wgmma: name, k, "result.a.b", C type and its asm constraint, tail after the descriptors, values of N.
WGMMA = [
    ("f16", 16, "f32.f16.f16", "float", "f", ", 1, 1, 1{ta}, 0", ALL_N),
    ("bf16", 16, "f32.bf16.bf16", "float", "f", ", 1, 1, 1{ta}, 0", (64, 128, 256)),
    ("tf32", 8, "f32.tf32.tf32", "float", "f", ", 1, 1, 1", SOME_N),
    ("e4m3", 32, "f32.e4m3.e4m3", "float", "f", ", 1, 1, 1", SOME_N),
    ("s8", 32, "s32.s8.s8", "uint32_t", "r", ", 1", SOME_N),
]
# No e4m3 here: mma.sync on fp8 is no instruction of Hopper (the compiler makes fp16 of the operands).
# mma.sync: name, "shape.row.col.types", registers of D (and C), A, B, type of C and constraint, constraint of A and B.
MMA = [
    ("f16.m16n8k16", "m16n8k16.row.col.f32.f16.f16.f32", 4, 4, 2, "float", "f", "r"),
    ("f16.f16.m16n8k16", "m16n8k16.row.col.f16.f16.f16.f16", 2, 4, 2, "uint32_t", "r", "r"),
    ("f16.m16n8k8", "m16n8k8.row.col.f32.f16.f16.f32", 4, 2, 1, "float", "f", "r"),
    ("bf16.m16n8k16", "m16n8k16.row.col.f32.bf16.bf16.f32", 4, 4, 2, "float", "f", "r"),
    ("tf32.m16n8k8", "m16n8k8.row.col.f32.tf32.tf32.f32", 4, 4, 2, "float", "f", "r"),
    ("tf32.m16n8k4", "m16n8k4.row.col.f32.tf32.tf32.f32", 4, 2, 1, "float", "f", "r"),
    ("s8.m16n8k32", "m16n8k32.row.col.s32.s8.s8.s32", 4, 4, 2, "uint32_t", "r", "r"),
    ("f64.m8n8k4", "m8n8k4.row.col.f64.f64.f64.f64", 2, 1, 1, "double", "d", "d"),
    ("f64.m16n8k4", "m16n8k4.row.col.f64.f64.f64.f64", 4, 2, 1, "double", "d", "d"),
    ("f64.m16n8k8", "m16n8k8.row.col.f64.f64.f64.f64", 4, 4, 2, "double", "d", "d"),
    ("f64.m16n8k16", "m16n8k16.row.col.f64.f64.f64.f64", 4, 8, 4, "double", "d", "d"),
]
# Vector operations: name, type, constraint, asm on %0 (in and out) and %1, %2 (in). {} is a scope of PTX registers.
F32, B32, F64 = ("float", "f"), ("uint32_t", "r"), ("double", "d")
OPERATIONS = [
    ("ffma", *F32, "fma.rn.f32 %0, %0, %1, %2;"),
    ("fadd", *F32, "add.rn.f32 %0, %0, %1;"),
    ("fmul", *F32, "mul.rn.f32 %0, %0, %1;"),
    ("dfma", *F64, "fma.rn.f64 %0, %0, %1, %2;"),
    ("dadd", *F64, "add.rn.f64 %0, %0, %1;"),
    ("hfma2", *B32, "fma.rn.f16x2 %0, %0, %1, %2;"),
    ("imad", *B32, "mad.lo.s32 %0, %0, %1, %2;"),
    ("lop", *B32, "lop3.b32 %0, %0, %1, %2, 0x96;"),
    ("shl", *B32, "{shf.l.wrap.b32 %0, %0, %1, 3;}"),
    ("cvt.rn.f16x2.f32", *F32, "{.reg .b32 d; cvt.rn.f16x2.f32 d, %0, %1; mov.b32 %0, d;}"),
    ("cvt.rn.bf16x2.f32", *F32, "{.reg .b32 d; cvt.rn.bf16x2.f32 d, %0, %1; mov.b32 %0, d;}"),
    ("cvt.rna.tf32.f32", *F32, "{.reg .b32 d; cvt.rna.tf32.f32 d, %0; mov.b32 %0, d;}"),
    ("cvt.rn.tf32.f32", *F32, "{.reg .b32 d; cvt.rn.tf32.f32 d, %0; mov.b32 %0, d;}"),
    ("cvt.f32.f16", *B32, "{.reg .b16 l, h; .reg .f32 d; mov.b32 {l, h}, %0; cvt.f32.f16 d, l; mov.b32 %0, d;}"),
    ("cvt.f32.bf16", *B32, "{.reg .b16 l, h; .reg .f32 d; mov.b32 {l, h}, %0; cvt.f32.bf16 d, l; mov.b32 %0, d;}"),
    ("cvt.rn.e4m3x2.f32", *F32, "{.reg .b16 h, z; mov.b16 z, 0; cvt.rn.satfinite.e4m3x2.f32 h, %0, %1; "
                                "mov.b32 %0, {h, z};}"),
    ("cvt.rn.f16x2.e4m3x2", *B32, "{.reg .b16 l, h; mov.b32 {l, h}, %0; cvt.rn.f16x2.e4m3x2 %0, l;}"),
    ("cvt.rn.f32.s32", *B32, "{.reg .f32 d; cvt.rn.f32.s32 d, %0; mov.b32 %0, d;}"),
    ("cvt.f64.f32.f64", *F64, "{.reg .f32 d; cvt.rn.f32.f64 d, %0; cvt.f64.f32 %0, d;}"),
    ("ex2", *F32, "ex2.approx.ftz.f32 %0, %0;"),
]  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """A kernel: its name, CUDA text, instructions per iteration and warp (wgmma: per warpgroup and inner count)."""

    name: str
    text: str
    work: int


def registers(first: int, count: int) -> str:
    """{%first, ...}."""
    return "{" + ", ".join(f"%{first + i}" for i in range(count)) + "}"


def wgmma(name: str, k: int, types: str, c: str, mark: str, tail: str, n: int, operand: str, accumulators: int,
          unroll: int, wait: int) -> Kernel:  # fmt: skip
    """One loop pass: a group of unroll * inner instructions (p[0] = inner) in turn on the accumulators, then a wait."""
    words = n // 2
    rs = operand == "rs"
    filled = tail.format(ta="" if rs else ", 0")
    body = ""
    for u in range(unroll):
        d = f"d{u % accumulators}"
        outs = ", ".join(f'"+{mark}"({d}[{i}])' for i in range(words))
        if rs:
            a, ins = registers(words, 4), ", ".join(f'"r"(ra[{i}])' for i in range(4))
            b = f"%{words + 4}"
        else:
            a, ins, b = f"%{words}", f'"l"(da + {2 * (u % 4)})', f"%{words + 1}"
        text = f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.{types} {registers(0, words)}, {a}, {b}{filled};"
        body += f'      asm volatile("{text}" : {outs} : {ins}, "l"(db + {2 * (u % 4)}));\n'
    arrays = "".join(
        f"  {c} d{i}[{words}];\n  for (int i = 0; i < {words}; i++) d{i}[i] = ({c})a.p[6];\n"
        for i in range(accumulators)
    )
    uses = "".join(f"  for (int i = 0; i < {words}; i++) sum += d{i}[i];\n" for i in range(accumulators))
    label = f"wgmma.{name}.{operand}.n{n}.acc{accumulators}.u{unroll}.wait{wait}"
    return Kernel(
        label,
        f"KERNEL({symbol(label)}, 256) {{\n"
        "  extern __shared__ __align__(1024) uint8_t smem[];\n"
        "  int bytes = 32768 + 8192;\n"
        "  for (int i = threadIdx.x; i < bytes / 16; i += blockDim.x) ((uint4*)smem)[i] = ((const uint4*)a.in)[i];\n"
        "  async_fence();\n"
        "  uint64_t db = tile_descriptor(shared_address(smem));\n"
        "  uint64_t da = tile_descriptor(shared_address(smem) + 32768);\n"
        "  uint32_t ra[4];\n  for (int i = 0; i < 4; i++) ra[i] = ((const uint32_t*)a.in)[threadIdx.x * 4 + i];\n"
        f"{arrays}  START\n"
        "#pragma unroll 1\n  for (int64_t i = 0; i < a.iterations; i++) {\n"
        '    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");\n'
        f"#pragma unroll 1\n    for (int64_t j = 0; j < {1 if unroll == 1 else 'a.p[0]'}; j++) {{\n{body}    }}\n"
        '    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");\n'
        f'    asm volatile("wgmma.wait_group.sync.aligned {wait};" ::: "memory");\n  }}\n'
        '  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");\n  STOP\n'
        f"  {c} sum = 0;\n{uses}  keep(a, (uint32_t)sum + ra[0]);\n}}\n",
        unroll,
    )


def mma(name: str, text: str, nd: int, na: int, nb: int, c: str, mark: str, ab: str, chains: int) -> Kernel:
    """`chains` accumulators per warp, 64 instructions per pass."""
    word = "double" if ab == "d" else "uint32_t"
    unroll = 64
    d, x, y, z = registers(0, nd), registers(nd, na), registers(nd + na, nb), registers(0, nd)
    body = ""
    for u in range(unroll):
        at = u % chains
        outs = ", ".join(f'"+{mark}"(c[{at}][{i}])' for i in range(nd))
        ins = ", ".join([f'"{ab}"(x[{i}])' for i in range(na)] + [f'"{ab}"(y[{i}])' for i in range(nb)])
        body += f'    asm volatile("mma.sync.aligned.{text} {d}, {x}, {y}, {z};" : {outs} : {ins});\n'
    label = f"mma.{name}.acc{chains}"
    return Kernel(
        label,
        f"KERNEL({symbol(label)}, 512) {{\n"
        f"  {word} x[{na}], y[{nb}];\n"
        f"  for (int i = 0; i < {na}; i++) x[i] = (({word}*)a.in)[threadIdx.x * {na} + i];\n"
        f"  for (int i = 0; i < {nb}; i++) y[i] = (({word}*)a.in)[threadIdx.x * {nb} + i + 7];\n"
        f"  {c} c[{chains}][{nd}];\n"
        f"  for (int i = 0; i < {chains}; i++) for (int j = 0; j < {nd}; j++) c[i][j] = ({c})a.p[i % 4 + j % 3];\n"
        f"  START\n#pragma unroll 1\n  for (int64_t i = 0; i < a.iterations; i++) {{\n{body}  }}\n  STOP\n"
        f"  {c} sum = 0;\n  for (int i = 0; i < {chains}; i++) for (int j = 0; j < {nd}; j++) sum += c[i][j];\n"
        "  keep(a, (uint32_t)sum);\n}\n",
        unroll,
    )


def operation(name: str, c: str, mark: str, text: str, chains: int) -> Kernel:
    """`chains` independent values per thread, 192 operations per pass."""
    unroll = 192
    ins = " ".join(f'"{mark}"({x})' for x in "yz").replace(" ", ", ")
    body = "".join(f'    asm volatile("{text}" : "+{mark}"(x[{u % chains}]) : {ins});\n' for u in range(unroll))
    label = f"op.{name}.ilp{chains}"
    return Kernel(
        label,
        f"KERNEL({symbol(label)}, 1024) {{\n"
        f"  const {c} *in = (const {c}*)a.in;\n  {c} x[{chains}], y = in[threadIdx.x], z = in[threadIdx.x + 1];\n"
        f"  for (int i = 0; i < {chains}; i++) x[i] = in[threadIdx.x + i];\n"
        f"  START\n#pragma unroll 1\n  for (int64_t i = 0; i < a.iterations; i++) {{\n{body}  }}\n  STOP\n"
        f"  {c} sum = 0;\n  for (int i = 0; i < {chains}; i++) sum += x[i];\n  keep(a, (uint32_t)sum);\n}}\n",
        unroll,
    )


def symbol(name: str) -> str:
    """A C name for a kernel's name."""
    return "k_" + name.replace(".", "_")


def kernels() -> Iterator[Kernel]:
    """All of them, in the order of the library."""
    for name, k, types, c, mark, tail, ns in WGMMA:
        for n in ns:
            for operand in ("ss", "rs"):
                row = (name, k, types, c, mark, tail, n, operand)
                yield wgmma(*row, 1, 1, 0)
                yield wgmma(*row, 1, 8, 0)
                if name != "f16":
                    continue
                yield wgmma(*row, 1, 4, 1)
                if n <= 192:
                    yield wgmma(*row, 2, 8, 0)
                if n <= 96:
                    yield wgmma(*row, 4, 8, 0)
    for row in MMA:
        for chains in (1, 2, 4, 8):
            yield mma(*row, chains)
    for entry in OPERATIONS:
        for chains in (1, 8):
            yield operation(*entry, chains)


def parts() -> list[str]:
    """The files' texts; each ends with its table of names and kernels."""
    everything = list(kernels())
    texts = []
    for part in range(PARTS):
        mine = everything[part::PARTS]
        rows = "".join(f'  {{"{x.name}", (const void*){symbol(x.name)}, {x.work}}},\n' for x in mine)
        texts.append(
            '#include "common.cuh"\n#include "table.h"\n'
            + "\n".join(x.text for x in mine)
            + f"\nextern const Entry arithmetic_{part}[] = {{\n{rows}}};\n"
            + f"extern const int arithmetic_{part}_count = {len(mine)};\n"
        )
    return texts


if __name__ == "__main__":
    for index, text in enumerate(parts()):
        (Path(sys.argv[1]) / f"arithmetic_{index}.cu").write_text(text)
