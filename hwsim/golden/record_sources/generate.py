"""Writes the recorder's kernels: CUDA source with one kernel per matrix instruction, from the table below.

    python generate.py --arch 90a > kernels.cu
    nvcc -O2 -std=c++17 -arch=sm_90a -shared -Xcompiler -fPIC -I. kernels.cu -o librecord.so

Standard library only. A row of the table says what PTX calls the shape and the formats, and the first target
that has it; how many registers an operand takes follows from that. Names are those of the golden files.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

BYTES = {
    "f64": 8,
    "f32": 4,
    "s32": 4,
    "tf32": 4,
    "f16": 2,
    "bf16": 2,
    "s8": 1,
    "u8": 1,
    "e4m3": 1,
    "e5m2": 1,
    "e3m2": 1,
    "e2m3": 1,
    "e2m1": 1,
}
NARROW_BITS = {"e3m2": 6, "e2m3": 6, "e2m1": 4}
FP8 = ("e4m3", "e5m2")
FP4_TO_FP8 = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
INT8 = ("s8", "u8")

# mma.sync: first compute capability, shape, results (with C the same), operand pairs.
MMA: list[tuple[int, str, tuple[str, ...], list[tuple[str, str]]]] = [
    (70, "m8n8k4", ("f32", "f16"), [("f16", "f16")]),
    (75, "m16n8k8", ("f32", "f16"), [("f16", "f16")]),
    (75, "m8n8k16", ("s32",), [(a, b) for a in INT8 for b in INT8]),
    (80, "m16n8k16", ("f32", "f16"), [("f16", "f16")]),
    (80, "m16n8k16", ("f32",), [("bf16", "bf16")]),
    (80, "m16n8k8", ("f32",), [("bf16", "bf16"), ("tf32", "tf32")]),
    (80, "m16n8k4", ("f32",), [("tf32", "tf32")]),
    (80, "m16n8k16", ("s32",), [(a, b) for a in INT8 for b in INT8]),
    (80, "m16n8k32", ("s32",), [(a, b) for a in INT8 for b in INT8]),
    (80, "m8n8k4", ("f64",), [("f64", "f64")]),
    (89, "m16n8k16", ("f32", "f16"), [(a, b) for a in FP8 for b in FP8]),
    (89, "m16n8k32", ("f32", "f16"), [(a, b) for a in FP8 for b in FP8]),
    (90, "m16n8k4", ("f64",), [("f64", "f64")]),
    (90, "m16n8k8", ("f64",), [("f64", "f64")]),
    (90, "m16n8k16", ("f64",), [("f64", "f64")]),
]
# wmma (a whole 16 x 16 tile, several instructions of the matrix unit): capability, k, results, operand format.
WMMA = [
    (70, 16, ("f32", "f16"), "f16"),
    (80, 16, ("f32",), "bf16"),
    (80, 8, ("f32",), "tf32"),
]
# wgmma, targets 90a: k, results, operand pairs.
WGMMA: list[tuple[int, tuple[str, ...], list[tuple[str, str]]]] = [
    (16, ("f32", "f16"), [("f16", "f16")]),
    (16, ("f32",), [("bf16", "bf16")]),
    (8, ("f32",), [("tf32", "tf32")]),
    (32, ("f32", "f16"), [(a, b) for a in FP8 for b in FP8]),
    (32, ("s32",), [(a, b) for a in INT8 for b in INT8]),
]
# tcgen05, targets 100a and 103a: kind, k, results, operand pairs.
TCGEN05: list[tuple[str, int, tuple[str, ...], list[tuple[str, str]]]] = [
    ("f16", 16, ("f32", "f16"), [("f16", "f16")]),
    ("f16", 16, ("f32",), [("bf16", "bf16")]),
    ("tf32", 8, ("f32",), [("tf32", "tf32")]),
    ("f8f6f4", 32, ("f32", "f16"), [(a, b) for a in FP4_TO_FP8 for b in FP4_TO_FP8]),
]
TCGEN05_SHAPES = [(128, 16), (64, 8)]
TCGEN05_CODES = {
    "f16": 0,
    "bf16": 1,
    "tf32": 2,
    "e4m3": 0,
    "e5m2": 1,
    "e2m3": 3,
    "e3m2": 4,
    "e2m1": 5,
}


@dataclass(frozen=True)
class CapturedKernel:
    """An instruction by its name, with the body of its kernel and the sizes that the host needs."""

    name: str
    m: int
    n: int
    k: int
    a: str
    b: str
    c: str
    d: str
    threads: int
    cases_per_block: int
    body: str
    largest_scale_d: int = 0

    def row(self, index: int) -> str:
        """The entry of the host's table."""
        m, n, k = self.m, self.n, self.k
        sizes = [m * k * BYTES[self.a], n * k * BYTES[self.b], m * n * BYTES[self.c], m * n * BYTES[self.d]]
        numbers = [m, n, k, *sizes, self.threads, self.cases_per_block, self.largest_scale_d]
        return f'  {{"{self.name}", k{index}, {", ".join(map(str, numbers))}}},'


def numbers(shape: str) -> tuple[int, int, int]:
    """m, n, k of a shape as PTX writes it."""
    m, n, k = re.fullmatch(r"m(\d+)n(\d+)k(\d+)", shape).groups()  # type: ignore[union-attr]
    return int(m), int(n), int(k)


def asm(text: str, outputs: list[str], inputs: list[str], constraint: str, extra: tuple[str, ...] = ()) -> str:
    """An asm statement. `text` has one {} per group of registers; outputs and inputs are C arrays "name:count"."""
    groups: list[str] = []
    out: list[str] = []
    into: list[str] = []
    at = 0
    for sink, arrays, mark in ((out, outputs, "="), (into, inputs, "")):
        for array in arrays:
            name, count = array.split(":")
            sink += [f'"{mark}{constraint}"({name}[{i}])' for i in range(int(count))]
            groups.append("{" + ", ".join(f"%{at + i}" for i in range(int(count))) + "}")
            at += int(count)
    return f'  asm volatile("{text.format(*groups)};" : {", ".join(out)} : {", ".join([*into, *extra])});\n'


def load(word: str, counts: dict[str, int], rows: int, k_words: dict[str, int], n: int, half: bool) -> str:
    """Registers a, b, c of one warp's tile, loaded from `pa`, `pb`, `pc`."""
    return (
        f"  {word} a[{counts['a']}], b[{counts['b']}], c[{counts['c']}], d[{counts['c']}];\n"
        f"  load_a<{rows}, {k_words['a']}>(a, pa); load_b<{k_words['b']}>(b, pb); "
        f"load_c<{n}, {str(half).lower()}>(c, pc);\n"
    )


def case_pointers(word: str, sizes: tuple[int, int, int, int], case: str) -> str:
    """Pointers of one case; sizes in words."""
    return f"  int w = {case};\n  if (w >= cases) return;\n" + "".join(
        f"  {'' if x == 'd' else 'const '}{word}* p{x} = "
        f"({'' if x == 'd' else 'const '}{word}*){x.upper()} + (size_t)w * {size};\n"
        for x, size in zip("abcd", sizes, strict=True)
    )


WARP = "(int)((blockIdx.x * blockDim.x + threadIdx.x) >> 5)"


def mma(shape: str, d: str, a: str, b: str, saturate: bool) -> CapturedKernel:
    """mma.sync: a warp per case."""
    m, n, k = numbers(shape)
    word, width, constraint = ("uint64_t", 8, "l") if d == "f64" else ("uint32_t", 4, "r")
    a_words, b_words = k * BYTES[a] // width, k * BYTES[b] // width
    c_words = n * BYTES[d] // width
    counts = {"a": m * a_words // 32, "b": n * b_words // 32, "c": m * c_words // 32}
    text = f"mma.sync.aligned.{shape}.row.col{'.satfinite' if saturate else ''}.{d}.{a}.{b}.{d} {{}}, {{}}, {{}}, {{}}"
    body = (
        case_pointers(word, (m * a_words, n * b_words, m * c_words, m * c_words), WARP)
        + load(word, counts, m, {"a": a_words, "b": b_words}, n, d == "f16")
        + asm(text, [f"d:{counts['c']}"], [f"a:{counts['a']}", f"b:{counts['b']}", f"c:{counts['c']}"], constraint)
        + f"  store_d<{n}, {str(d == 'f16').lower()}>(pd, d);\n"
    )
    name = f"mma.{shape}{'.satfinite' if saturate else ''}.{d}.{a}.{b}.{d}"
    return CapturedKernel(name=name, m=m, n=n, k=k, a=a, b=b, c=d, d=d, threads=128, cases_per_block=4, body=body)


def volta(d: str, c: str) -> CapturedKernel:
    """mma.m8n8k4 on fp16: four cases per warp, one by each pair of quads."""
    regs = {"f32": 8, "f16": 4}
    words = {"f32": 64, "f16": 32}
    half = {name: str(name == "f16").lower() for name in regs}
    body = (
        # Lanes without a case take case 0, so that the whole warp reaches the instruction.
        f"  int own = {WARP} * 4 + quad_pair(), w = own < cases ? own : 0;\n"
        "  const uint32_t *pa = (const uint32_t*)A + (size_t)w * 16, *pb = (const uint32_t*)B + (size_t)w * 16;\n"
        f"  const uint32_t* pc = (const uint32_t*)C + (size_t)w * {words[c]};\n"
        f"  uint32_t* pd = (uint32_t*)D + (size_t)w * {words[d]};\n"
        f"  uint32_t a[2], b[2], c[{regs[c]}], d[{regs[d]}];\n"
        "  for (int i = 0; i < 2; i++) { a[i] = pa[pair_thread() * 2 + i]; b[i] = pb[pair_thread() * 2 + i]; }\n"
        f"  for (int i = 0; i < {regs[c]}; i++) c[i] = pc[pair_c_word<{half[c]}>(i)];\n"
        + asm(
            f"mma.sync.aligned.m8n8k4.row.col.{d}.f16.f16.{c} {{}}, {{}}, {{}}, {{}}",
            [f"d:{regs[d]}"],
            ["a:2", "b:2", f"c:{regs[c]}"],
            "r",
        )
        + f"  if (own < cases) for (int i = 0; i < {regs[d]}; i++) pd[pair_c_word<{half[d]}>(i)] = d[i];\n"
    )
    return CapturedKernel(
        name=f"mma.m8n8k4.{d}.f16.f16.{c}",
        m=8,
        n=8,
        k=4,
        a="f16",
        b="f16",
        c=c,
        d=d,
        threads=128,
        cases_per_block=16,
        body=body,
    )


def wmma(k: int, d: str, a: str) -> CapturedKernel:
    """wmma 16 x 16: the layout of fragments is the compiler's, so operands go through its own loads and stores."""
    types = {"f16": "half", "bf16": "__nv_bfloat16", "tf32": "nvcuda::wmma::precision::tf32", "f32": "float"}
    stored = {**types, "tf32": "float"}
    tile = f"16, 16, {k}"
    body = (
        f"  using namespace nvcuda::wmma;\n  int w = {WARP};\n  if (w >= cases) return;\n"
        f"  fragment<matrix_a, {tile}, {types[a]}, row_major> a;\n"
        f"  fragment<matrix_b, {tile}, {types[a]}, col_major> b;\n"
        f"  fragment<accumulator, {tile}, {types[d]}> c, d;\n"
        f"  load_matrix_sync(a, (const {stored[a]}*)A + (size_t)w * {16 * k}, {k});\n"
        f"  load_matrix_sync(b, (const {stored[a]}*)B + (size_t)w * {16 * k}, {k});\n"
        f"  load_matrix_sync(c, (const {types[d]}*)C + (size_t)w * 256, 16, mem_row_major);\n"
        f"  mma_sync(d, a, b, c);\n"
        f"  store_matrix_sync(({types[d]}*)D + (size_t)w * 256, d, 16, mem_row_major);\n"
    )
    return CapturedKernel(
        name=f"wmma.m16n16k{k}.{d}.{a}.{a}.{d}",
        m=16,
        n=16,
        k=k,
        a=a,
        b=a,
        c=d,
        d=d,
        threads=128,
        cases_per_block=4,
        body=body,
    )


def wgmma(n: int, k: int, d: str, a: str, b: str, saturate: bool) -> CapturedKernel:
    """wgmma: a warpgroup per case, A from registers, B from shared memory; each warp has 16 rows."""
    half = d == "f16"
    c_words = n * BYTES[d] // 4
    regs = 16 * c_words // 32
    flags = {"f16": "1, 1, 1, 0", "bf16": "1, 1, 1, 0", "s8": "1", "u8": "1"}.get(a, "1, 1, 1")
    accumulators = ", ".join(f"%{i}" for i in range(regs))
    operands = ", ".join(f"%{regs + i}" for i in range(4))
    text = (
        "wgmma.fence.sync.aligned;\\n"
        f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.{d}.{a}.{b}{'.satfinite' if saturate else ''} "
        f"{{{accumulators}}}, {{{operands}}}, %{regs + 4}, {flags};\\n"
        "wgmma.commit_group.sync.aligned;\\nwgmma.wait_group.sync.aligned 0;"
    )
    body = (
        f"  __shared__ alignas(128) uint32_t tile[{n * 8}];\n"
        "  int w = blockIdx.x, warp = threadIdx.x >> 5;\n"
        "  const uint32_t* pa = (const uint32_t*)A + (size_t)w * 512 + warp * 128;\n"
        f"  const uint32_t* pc = (const uint32_t*)C + (size_t)w * {64 * c_words} + warp * {16 * c_words};\n"
        f"  uint32_t* pd = (uint32_t*)D + (size_t)w * {64 * c_words} + warp * {16 * c_words};\n"
        f"  tile_to_shared(tile, (const uint32_t*)B + (size_t)w * {n * 8}, {n});\n"
        "  shared_written();\n"
        f"  uint32_t a[4], c[{regs}];\n"
        f"  load_a<16, 8>(a, pa); load_c<{n}, {str(half).lower()}>(c, pc);\n"
        "  uint64_t b = descriptor(tile);\n"
        f'  asm volatile("{text}"\n    : {", ".join(f"{chr(34)}+r{chr(34)}(c[{i}])" for i in range(regs))}\n'
        f'    : {", ".join(f"{chr(34)}r{chr(34)}(a[{i}])" for i in range(4))}, "l"(b) : "memory");\n'
        f"  store_d<{n}, {str(half).lower()}>(pd, c);\n"
    )
    name = f"wgmma.m64n{n}k{k}{'.satfinite' if saturate else ''}.{d}.{a}.{b}"
    return CapturedKernel(name=name, m=64, n=n, k=k, a=a, b=b, c=d, d=d, threads=128, cases_per_block=1, body=body)


def tcgen05(m: int, n: int, kind: str, k: int, d: str, a: str, b: str) -> CapturedKernel:
    """tcgen05.mma, one CTA: A and B in shared memory, the accumulator in tensor memory, 4 warps.

    Tensor memory: a column of 32 bits per element (fp16: its low half). With m = 128 the lanes are the rows;
    with m = 64 each warp has 16 rows in its first 16 lanes. Instruction descriptor: format of D at bit 4, of A
    at 7, of B at 10, n / 8 at 17, m / 16 at 24 (PTX ISA 8.6, tcgen05 instruction descriptor).
    """
    word = (d == "f32") << 4 | TCGEN05_CODES[a] << 7 | TCGEN05_CODES[b] << 10 | n // 8 << 17 | m // 16 << 24
    registers = ", ".join(f"%{i}" for i in range(n))
    columns = ", ".join(f'"r"(c[{i}])' for i in range(n))
    results = ", ".join(f'"=r"(c[{i}])' for i in range(n))
    element = "uint32_t" if d == "f32" else "uint16_t"
    scales = 15 if kind in ("f16", "tf32") else 0

    def issue(scale: int) -> str:
        tail = f", {scale}" if scale else ""
        return (
            '{ asm volatile("{.reg .pred p;\\n setp.ne.b32 p, 1, 0;\\n '
            f'tcgen05.mma.cta_group::1.kind::{kind} [%0], %1, %2, %3, p{tail};}}"\n'
            '      :: "r"(tensor), "l"(a), "l"(b), "r"(word) : "memory"); break; }'
        )

    def fill(name: str, fmt: str, rows: int) -> str:
        size = rows * 8 if fmt not in NARROW_BITS else rows * 32
        if fmt in NARROW_BITS:
            return (
                f"  narrow_to_shared({name}, (const uint8_t*){name[-1].upper()} + (size_t)w * {size}, {rows}, "
                f"{NARROW_BITS[fmt]});\n"
            )
        return f"  tile_to_shared({name}, (const uint32_t*){name[-1].upper()} + (size_t)w * {size}, {rows});\n"

    row = "warp * 32 + lane()" if m == 128 else "warp * 16 + lane()"
    guard = "" if m == 128 else "if (lane() < 16) "
    body = (
        f"  __shared__ alignas(128) uint32_t tile_a[{m * 8}], tile_b[{n * 8}];\n"
        "  __shared__ alignas(8) uint64_t barrier;\n  __shared__ uint32_t tensor_base;\n"
        f"  int w = blockIdx.x, warp = threadIdx.x >> 5, row = {row};\n"
        "  uint32_t at = (uint32_t)__cvta_generic_to_shared(&tensor_base);\n"
        "  uint32_t done = (uint32_t)__cvta_generic_to_shared(&barrier);\n"
        '  if (warp == 0) asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;\\n"\n'
        '    "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" :: "r"(at) : "memory");\n'
        '  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\\n"\n'
        '    "fence.mbarrier_init.release.cluster;" :: "r"(done) : "memory");\n'
        + fill("tile_a", a, m)
        + fill("tile_b", b, n)
        + "  shared_written();\n"
        "  uint32_t tensor = tensor_base, mine = tensor + ((uint32_t)warp << 21);\n"
        f"  uint32_t c[{n}];\n  for (int i = 0; i < {n}; i++) c[i] = 0;\n"
        f"  {guard}for (int i = 0; i < {n}; i++) "
        f"c[i] = ((const {element}*)C)[(size_t)w * {m * n} + row * {n} + i];\n"
        f'  asm volatile("tcgen05.st.sync.aligned.32x32b.x{n}.b32 [%{n}], {{{registers}}};\\n"\n'
        f'    "tcgen05.wait::st.sync.aligned;\\n tcgen05.fence::before_thread_sync;" :: {columns}, "r"(mine)'
        ' : "memory");\n'
        "  __syncthreads();\n"
        '  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");\n'
        "  if (threadIdx.x == 0) {\n"
        "    uint64_t a = descriptor(tile_a) | 1ull << 46, b = descriptor(tile_b) | 1ull << 46;\n"
        f"    uint32_t word = {word:#x};\n    switch (scale_d) {{\n"
        + "".join(f"    case {scale}: {issue(scale)}\n" for scale in range(scales + 1))
        + "    }\n"
        '    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];"\n'
        '      :: "r"(done) : "memory");\n  }\n'
        "  for (uint32_t ready = 0; !ready;)\n"
        '    asm volatile("{.reg .pred p;\\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\\n "\n'
        '      "selp.u32 %0, 1, 0, p;}" : "=r"(ready) : "r"(done) : "memory");\n'
        '  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");\n'
        f'  asm volatile("tcgen05.ld.sync.aligned.32x32b.x{n}.b32 {{{registers}}}, [%{n}];\\n"\n'
        f'    "tcgen05.wait::ld.sync.aligned;" : {results} : "r"(mine) : "memory");\n'
        f"  {guard}for (int i = 0; i < {n}; i++) "
        f"(({element}*)D)[(size_t)w * {m * n} + row * {n} + i] = ({element})c[i];\n"
        '  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");\n'
        "  __syncthreads();\n"
        '  if (warp == 0) asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 32;" :: "r"(tensor));\n'
    )
    name = f"tcgen05.mma.m{m}n{n}k{k}.{kind}.{d}.{a}.{b}"
    return CapturedKernel(
        name=name, m=m, n=n, k=k, a=a, b=b, c=d, d=d, threads=128, cases_per_block=1, body=body, largest_scale_d=scales
    )


def kernels(arch: str, wgmma_n: list[int]) -> Iterator[CapturedKernel]:
    """Every instruction of a target such as "80" or "90a"."""
    capability = int(re.sub(r"\D", "", arch))
    for since, shape, results, pairs in MMA:
        if capability < since:
            continue
        for d in results:
            for a, b in pairs:
                if shape == "m8n8k4" and a == "f16":
                    yield volta(d, d)
                    if d == "f32":
                        yield volta("f32", "f16")
                    continue
                yield mma(shape, d, a, b, saturate=False)
                if d == "s32":
                    yield mma(shape, d, a, b, saturate=True)
    for since, k, results, a in WMMA:
        if capability >= since:
            yield from (wmma(k, d, a) for d in results)
    if arch == "90a":
        for n in wgmma_n:
            for k, results, pairs in WGMMA:
                for d in results:
                    if d == "s32" and n > 24 and n % 16:
                        continue  # PTX: integer wgmma has n = 8, 16, 24, 32, 48, 64, ...
                    yield from (wgmma(n, k, d, a, b, saturate=False) for a, b in pairs)
                    if d == "s32":
                        yield from (wgmma(n, k, d, a, b, saturate=True) for a, b in pairs)
    if arch in ("100a", "100f", "103a", "103f"):
        for m, n in TCGEN05_SHAPES:
            for kind, k, results, pairs in TCGEN05:
                yield from (tcgen05(m, n, kind, k, d, a, b) for d in results for a, b in pairs)


def source(arch: str, wgmma_n: list[int]) -> str:
    """The CUDA source for a target."""
    listed = list(kernels(arch, wgmma_n))
    parts = [
        "// Written by generate.py; do not edit.\n"
        '#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n#include <mma.h>\n#include "recorder.cuh"\n'
        "namespace record {\n"
    ]
    for index, kernel in enumerate(listed):
        parts.append(
            f"// {kernel.name}\n__global__ void k{index}(const void* A, const void* B, const void* C, void* D, "
            f"int cases, int scale_d) {{\n{kernel.body}}}\n"
        )
    rows = "\n".join(kernel.row(index) for index, kernel in enumerate(listed))
    parts.append(
        f"extern const Instruction table[] = {{\n{rows}\n}};\n"
        "extern const int table_size = sizeof table / sizeof table[0];\n}  // namespace record\n"
    )
    return "\n".join(parts)


def main() -> None:
    """Write the source, or the names, to standard output."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", required=True, help="target without sm_, e.g. 75, 80, 89, 90a, 100a")
    parser.add_argument("--wgmma-n", default="8,64,256", help="columns of wgmma, multiples of 8 up to 256")
    parser.add_argument("--list", action="store_true", help="print the names of the instructions instead")
    options = parser.parse_args()
    if not re.fullmatch(r"\d{2,3}[af]?", options.arch):
        parser.error(f"--arch {options.arch}: two or three digits, then a or f where needed; e.g. 80, 90a")
    wgmma_n = [int(n) for n in options.wgmma_n.split(",")]
    if any(n % 8 or not 8 <= n <= 256 for n in wgmma_n):
        parser.error(f"--wgmma-n {options.wgmma_n}: multiples of 8 from 8 to 256 are allowed")
    if options.list:
        sys.stdout.write("".join(f"{kernel.name}\n" for kernel in kernels(options.arch, wgmma_n)))
    else:
        sys.stdout.write(source(options.arch, wgmma_n))


if __name__ == "__main__":
    main()
