"""The options of `hwsim.run` as a type: their names and the types of their values.

Written by hwsim.request.generate from the declarations; change these, not this file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from numpy.typing import ArrayLike

from hwsim.gemm.mapping import Tile
from hwsim.gemm.schedule import Schedule
from hwsim.libraries.on_device import LibraryOnDevice


class RunOptions(TypedDict, total=False):
    """Every option of `hwsim.run` that hwsim, its schemes or its dataflows declare."""

    #: rows of A and C (at least 1 and at most 1000000000; default: from the matrices, else 1024)
    m: int | None

    #: columns of B and C (at least 1 and at most 1000000000; default: from the matrices, else 1024)
    n: int | None

    #: columns of A, rows of B (at least 1 and at most 1000000000; default: from the matrices, else 1024)
    k: int | None

    #: matrices of a stack, as many of A as of B: as many products in one call, where A and B are not given (at least 1
    #: and at most 1000000000; default: one matrix, no stack)
    batch: int | None

    #: a convolution instead of m, n and k, as an implicit GEMM, with exact=False: channels, height, width, filters, r,
    #: s, and batch, stride, padding, dilation, groups (pairs as JSON)
    conv: Mapping[str, Any] | None

    #: format of the elements of A and B in memory, where the arrays are bit patterns; with exact=False, of operands of
    #: which only the sizes are known; two with a comma are A's and B's: e4m3,e5m2 (default: the arrays'; with
    #: exact=False `format`, else fp32)
    input_format: str | None

    #: seed of random matrices (at least 0; default: 0)
    seed: int | None

    #: distribution of random matrices: normal (N(0, 1)), uniform (uniform in [-1, 1)), positive (uniform in [0, 1)),
    #: log-uniform:LOW:HIGH (numbers +-2^x, x uniform from LOW to HIGH; default -10:10), scaled-rows:E (N(0, 1), each
    #: row of A and column of B times a power of two from 2^-E to 2^E; default 10), anybits (bit patterns, infinities
    #: and NaNs among them), finite (finite bit patterns), narrow (numbers with exponents within 3 of 0), spread
    #: (numbers with exponents within 15 of 0, half of them powers of two), cancel (pairs of products that cancel, but
    #: for a last place), subnormal (numbers, A subnormal, B as small or for subnormal results), huge (numbers of the
    #: largest binades) (default: normal)
    operand_distribution: str | None

    #: scales of A: fp32 (m or ceil(m/128) or 1, blocks of 128 of K or 1), or codes (uint8): ue8m0 by 32 of K, ue4m3 by
    #: 16
    scale_a: ArrayLike | None

    #: scales of B, a row for each column: (n or ceil(n/128) or 1, blocks of K)
    scale_b: ArrayLike | None

    #: fp32 factors of all of A and all of B, beside scales or without any (NVFP4's global scales)
    tensor_scales: Sequence[float] | None

    #: 2:4: of four elements of A along K at most two are not zero (32 bits: one of two); hwsim.prune makes that (2:4;
    #: default: A is dense)
    sparsity: str | None

    #: with scheme=auto: largest predicted error, relative, Frobenius norm; the fastest such scheme is used
    error_target: float | None

    #: operand format of schemes that accept native formats (default: the operands' own if the device has a unit for it,
    #: else the device file's default_format)
    #: operand format (default: the operands' own, or the device's default) [native]
    #: format of the pieces (int8, int4; default: int8) [quantensor]
    format: str | None

    #: factor of the product (default: 1)
    alpha: float | None

    #: factor of C (default: 1 where a C is given, else 0)
    beta: float | None

    #: (n,) values, one added to each column; true: any, for cycles alone
    bias: ArrayLike | None

    #: format of the result; rounded to nearest even at the end (default: the scheme's, or what the unit gives)
    output: str | None

    #: order of summation over K: the fields of hwsim.gemm.schedule.Schedule (default: one chain in order of K, or the
    #: dataflow's)
    schedule: Schedule | Mapping[str, Any] | None

    #: order of factors outside the unit: joined (A's times B's first), a (the sum times A's, then B's), b (B's first)
    #: (joined, a, b; default: joined; with `library` its kernel's)
    scale_order: str | None

    #: GEMM library whose kernel, order of summation and epilogue are taken, as PyTorch 2.11 calls it; or a file that
    #: `hwsim library record` wrote, or what hwsim.library gave for this device (default: none: the device's own order)
    library: str | Path | LibraryOnDevice | None

    #: type in which `library` may add slices of K: compute (the accumulator's) or any (16 bits too), as PyTorch's
    #: allow_bf16_reduced_precision_reduction and fp16's let it; none: kernels without slices (allow_splitk=False) (any,
    #: compute, none; default: as `library` is called: cublas compute for 16-bit results, pytorch any)
    reductions: str | None

    #: bytes of workspace that `library` may use, by cublasGemmEx (at least 0; default: as PyTorch gives it)
    workspace_bytes: int | None

    #: the same by cublasLtMatmul (products with a bias, 8-bit operands) (at least 0; default: as PyTorch gives it)
    lt_workspace_bytes: int | None

    #: only these rows of the result, with the bits they have in the whole
    rows: slice | ArrayLike | None

    #: only these columns of the result, with the bits they have in the whole
    cols: slice | ArrayLike | None

    #: (m, n) of the whole product, where A and B hold some of its rows and columns (default: the matrices' own)
    shape: tuple[int, int] | list[int] | None

    #: which rows and columns of the whole product A's rows and B's columns are
    at: Sequence[slice | ArrayLike] | None

    #: compute the bits; false: cycles only, for operands in `input_format`, else in `format`, else in fp32 (default:
    #: True)
    exact: bool | None

    #: compute the cycles; false: bits only (default: True)
    timing: bool | None

    #: compute the bits by executing the device's program (true), or directly, without it (false); same bits (default:
    #: false)
    functional: bool | None

    #: elements of C as (row, column): the result names the instructions that made them, with values; in a stack of its
    #: first matrix, unless the matrix's indices come first
    values: Sequence[Sequence[int]] | None

    #: L2 before the timed run: series, as the same call left it; warm, the same with results in HBM; cold, empty
    #: (series, warm, cold; default: series)
    l2: str | None

    #: core clock; it stays, whatever the load (default: the device's under this load, where its file gives clocks under
    #: load, else the file's)
    clock_mhz: float | None

    #: power that the board may draw, at most its own limit: the clock under load follows from it (default: the board's
    #: own)
    power_limit_w: float | None

    #: seconds include the device's launch overhead of every kernel
    launch_overhead: bool | None

    #: host threads for the bits; no influence on the result (at least 1 and at most 1024; default: all)
    threads: int | None

    #: what computes the bits: this machine's processors, or its NVIDIA GPU; no influence on the result (cpu, cuda;
    #: default: HWSIM_ENGINE, else cpu)
    engine: str | None

    #: CTA tile: elements of C per core, and of K per stage: m=128,n=256,k=64, or three numbers in the family's order
    #: (davinci: m,k,n; elsewhere m,n,k) (default: the fastest by estimate) [davinci, davinci_separated, systolic, sm70,
    #: sm80, sm90, sm100, cdna, tiled]
    tile: Tile | Mapping[str, int] | tuple[int, ...] | list[int] | None

    #: blocks of A that stay in L1 while B is streamed (at least 1; default: as many as fit) [davinci]
    n_fused: int | None

    #: buffers per stage of the pipeline (single, double; default: double) [davinci, davinci_separated]
    buffering: str | None

    #: where A is split into the unit's format: before (by a kernel of its own), or kernel (in the GEMM kernel, block by
    #: block on the way into L1) (before, kernel; default: before) [davinci]
    convert_a: str | None

    #: rows and columns of the grid of cores that C is dealt to (davinci; 32,1 on 32 cores: block rows of A alone), or
    #: of blocks (davinci_separated, with distribution=block) (default: chosen by estimate) [davinci, davinci_separated]
    grid: tuple[int, int] | list[int] | None

    #: a column-major A is copied first, so that the rows of a block lie in one piece of memory (no bit depends on it)
    #: (default: chosen by estimate) [davinci]
    pack_a: bool | None

    #: a row-major B is copied first, so that the columns of a block lie in one piece of memory (no bit depends on it)
    #: (default: chosen by estimate) [davinci]
    pack_b: bool | None

    #: split-K: slices of K, reduced by a separate kernel (changes the bits); auto: the number with the least simulated
    #: time of those with the least estimated (at least 1; default: 1; more for narrow operands on the 910A) [davinci,
    #: sm70, sm80, sm90, sm100, cdna, tiled]
    split_k: int | Literal["auto"] | None

    #: storage order of A: row-major or column-major (rows, columns; default: rows) [davinci, davinci_separated, sm70,
    #: sm80, sm90, sm100, cdna, tiled]
    a_layout: str | None

    #: storage order of B: row-major or column-major (rows, columns; default: rows) [davinci, davinci_separated, sm70,
    #: sm80, sm90, sm100, cdna, tiled]
    b_layout: str | None

    #: tile rasterisation: width of a band of columns, in tiles, for locality in L2 (at least 1; default: chosen)
    #: [davinci_separated, sm70, sm80, sm90, sm100, cdna, tiled]
    swizzle: int | None

    #: blocks of K per packet of A in L1 (stepKa) (at least 1; default: chosen) [davinci_separated]
    step_ka: int | None

    #: blocks of K per packet of B in L1 (stepKb) (at least 1; default: chosen) [davinci_separated]
    step_kb: int | None

    #: distribution of tiles over cores: cyclic (tile t to core t mod cores), or block (one block of tiles per core)
    #: (cyclic, block; default: cyclic) [davinci_separated]
    distribution: str | None

    #: the FixPipe reads parts of the result while the cube still works (UnitFlag) (default: false) [davinci_separated]
    unit_flag: bool | None

    #: the operand that stays in the PEs of a systolic array: weights (B), outputs (C) or inputs (A). The sign of a zero
    #: may depend on it (weights, outputs, inputs; default: the native instruction's) [systolic]
    stationary: str | None

    #: tiles that the PEs of a systolic array hold: with 2 the next one is filled, or the last one drained, while rows
    #: stream (at least 1 and at most 2; default: 1) [systolic]
    pe_tiles: int | None

    #: of a systolic array: load the operand that streams past several tiles of what stays once, and keep all of its K
    #: in its memory; load the other one once too, where its memory holds all of an array's share (default: where it
    #: fits) [systolic]
    reuse: bool | None

    #: depth of the software pipeline: blocks of K in shared memory; with staging=none: CTAs that share a core, each
    #: with a block of K on its way (at least 1; default: as many as fit, up to the family's or the library kernel's
    #: most) [sm70, sm80, sm90, sm100, cdna, tiled]
    stages: int | None

    #: stream-k: where the last wave of tiles is not full, CTAs take equal ranges of K over consecutive tiles, and add
    #: their sums through a workspace (changes the bits); data-parallel: a tile to a CTA (data-parallel, stream-k;
    #: default: data-parallel) [sm70, sm80, sm90, sm100, cdna, tiled]
    decomposition: str | None

    #: matrix instruction of the program; one with the bits of the device's own (for example mma.sync instead of wgmma)
    #: (default: the device's own, or the library's for split-K) [sm70, sm80, sm90, sm100, cdna, tiled]
    instruction: str | None

    #: shared: blocks of K wait in shared memory; none: each warp loads its fragments straight from global memory, as
    #: NVIDIA's simple_wmma_gemm and rocWMMA's simple_hgemm do (shared, none; default: shared) [sm70, sm80, sm90, sm100,
    #: cdna, tiled]
    staging: str | None

    #: warp tile: rows and columns of C per warp or wavefront (with a tile; with staging=none also alone) (default: the
    #: library's for such a tile; with staging=none one fragment) [sm70, sm80, sm90, sm100, cdna, tiled]
    warp: tuple[int, int] | list[int] | None

    #: takes a tile whose accumulators need more registers than there are; they are stored to local memory after every
    #: block of K and read back (default: false: such a tile is refused) [sm70, sm80, sm90, sm100, cdna, tiled]
    spill: bool | None

    #: 2: pairs of SMs multiply together and share B (tcgen05's cta_group::2); `tile` is per SM (at least 1; default: 1)
    #: [sm100]
    cta_group: int | None

    #: operand format of B where it differs from A's: e5m2 beside e4m3, on units that take both [native]
    format_b: str | None

    #: promotion interval: length of K summed inside the unit before the sum is added outside (at least 1; default: all
    #: of K; on the 910A the tile decides) [native, sgemm-cube]
    #: promotion interval: length of K summed inside the unit before the sum is added outside (at least 1; default: all
    #: of K) [le-gemm, ape-fp32-f, ape-fp32-b, ape-fp32-t, tf32x1, tf32x3, tf32x4, tf64x1, tf64x3, tf64x4, markidis,
    #: egemm-tc]
    #: termwise: promotion interval: length of K summed inside the unit before the sum is added outside (at least 1;
    #: default: all of K) [bf16x9, bf16x6, bf16x3]
    k_group: int | None

    #: fast: one chain over K; promoted (8-bit floats only): a promotion interval of 128 (fast, promoted; default: fast)
    #: [native]
    #: sum of the products; int32 wraps (int64, int32; default: int64) [ape-int16]
    #: chain: one chain over K; instruction: the sum of each instruction is added outside, for units whose sums of FP8
    #: products keep few bits (chain, instruction; default: the first that is exact on the device) [ozaki2-fp8]
    #: fast: one chain over K; promoted: a promotion interval of 128 (fast, promoted; default: fast) [mxfp8, mxfp6,
    #: mxfp4, nvfp4, fp8-row]
    #: fast: one chain over K; promoted: a promotion interval of 128 (fast, promoted; default: promoted) [fp8-block]
    accumulate: str | None

    #: the low piece is scaled by 2^this (0 to 12 in the paper) (at least 0 and at most 126; default: 12) [sgemm-cube]
    scaling_exponent: int | None

    #: combine the three terms after all of K (termwise), or after every k_group (elementwise) (termwise, elementwise;
    #: default: termwise) [sgemm-cube]
    #: fastf32: bands scaled inside the unit (tcgen05); bands: outside it; termwise: whole products added outside
    #: (fastf32, termwise, bands; default: fastf32 where the unit scales its accumulator, else termwise) [bf16x9,
    #: bf16x6, bf16x3]
    #: chained: in the unit, one kernel; termwise: each product a GEMM of its own, added to C outside (library calls)
    #: (chained, termwise; default: chained) [ape-fp32-f, ape-fp32-b, markidis, egemm-tc]
    #: chained: in the unit, one kernel; termwise: each product a GEMM of its own, added to C outside (library calls)
    #: (chained, termwise; default: termwise) [tf32x3, tf32x4]
    accumulation: str | None

    #: power-of-two: A and B are first multiplied by the powers of two that bring their largest elements near FP16's
    #: (power-of-two; default: none) [sgemm-cube, le-gemm, ape-fp32-f, markidis, egemm-tc, ootomo-fp16]
    scale: str | None

    #: rounding of the low piece: RZ as Eq. 5-8, RNE as the text of Algorithm 1 (RZ, RNE; default: RZ) [le-gemm]
    residual_rounding: str | None

    #: products of one accumulator alternate per instruction, after so many elements of K, or (k) each runs over all K
    #: (at least 1; default: instruction) [le-gemm, ape-fp32-f, ape-fp32-b, ape-fp32-t, ape, tf32x3, tf32x4, markidis,
    #: egemm-tc]
    interleave: int | Literal["instruction", "k"] | None

    #: fastf32, bands: the promotion interval, in steps of 16 of K (at least 1; default: 1) [bf16x9, bf16x6, bf16x3]
    promotion_interval: int | None

    #: use native fp32 instead where its simulated time is shorter [bf16x9, bf16x6, bf16x3]
    hybrid: bool | None

    #: unsigned, where the unit multiplies u8; else biased by 128; signed: as released, wraps from 32640 (unsigned,
    #: biased, signed) [ape-int16]
    low_byte: str | None

    #: elements of a block along m, n and k (at least 16 and at most 2147483647; default: 128) [ape]
    block: int | None

    #: hybrid: each block its own plan; else one plan for all; decide: the fastest that the operands allow (hybrid,
    #: fp32-f, fp32-b, native, decide; default: hybrid) [ape]
    strategy: str | None

    #: narrow: a zero is in every range (ours); wide: below every range, as Listing 5 compares, so that its block is
    #: native fp32 (narrow, wide; default: narrow) [ape]
    zeros: str | None

    #: without operands: percent of block products for fp32-b (at least 0 and at most 100) [ape]
    wide_percent: int | None

    #: of both pieces: RZ as EGEMM-TC and SGEMM-cube (Table 2) describe it; RNE is CUDA's own conversion, which Ape's
    #: errors (Fig. 14) fit (RZ, RNE; default: RZ) [markidis]
    #: of both pieces: its text says round-split; SGEMM-cube's Table 2 says RZ (RZ, RNE; default: RNE) [egemm-tc]
    rounding: str | None

    #: sums of the product of high pieces: outside the unit after each instruction, or in the unit over all of K
    #: (outside, unit; default: outside) [ootomo-fp16, ootomo-tf32]
    leading: str | None

    #: pieces per operand (at least 1; default: 2) [quantensor]
    pieces: int | None

    #: all products of pieces, or those with i + j below `pieces` (default: True) [quantensor]
    all_products: bool | None

    #: one more piece of each operand, multiplied by the other's first [quantensor]
    residual: bool | None

    #: slices per operand; default: enough for 53 bits; 0: as many as represent the operands exactly (at least 0)
    #: [ozaki-fp16, ozaki-int8]
    slices: int | None

    #: leave out products of slices i + j >= slices (counted from 0) (default: True) [ozaki-fp16, ozaki-int8]
    truncate: bool | None

    #: fp64: rounded additions from the least significant; exact: one rounding (fp64, exact; default: fp64) [ozaki-fp16,
    #: ozaki-int8]
    #: of residues; fp64: in one or two fp64 numbers, as GEMMul8; exact: in as many as hold it, rounded once (fp64,
    #: exact; default: fp64) [ozaki2-int8, ozaki2-fp8]
    sum: str | None

    #: number of moduli: more are more accurate, and more products (at least 2 and at most 20; default: int8: 15, and 7
    #: for fp32 results; fp8: 13 and 6) [ozaki2-int8, ozaki2-fp8]
    moduli: int | None

    #: powers of two of rows and columns; fast: by their norms, as GEMMul8, which is right for operands near 1;
    #: accurate: by one more product, of magnitudes, as GEMMul8; norms: by norms, whatever their size (fast, accurate,
    #: norms; default: fast) [ozaki2-int8, ozaki2-fp8]
    mode: str | None

    #: format of the result: fp64 is DGEMM, fp32 is SGEMM (fp64, fp32; default: the operands') [ozaki2-int8, ozaki2-fp8]
    result: str | None

    #: format of an element (e4m3, e5m2; default: e4m3) [mxfp8, fp8-block, fp8-row]
    #: format of an element (e2m3, e3m2; default: e2m3) [mxfp6]
    #: format of an element (e2m1; default: e2m1) [mxfp4, nvfp4]
    element_format: str | None

    #: how a scale follows from the largest magnitude of its block (hwsim.quantize) (rceil, floor, ceil, even, cublaslt,
    #: te, deepgemm, torchao; default: rceil) [mxfp8, mxfp6, mxfp4]
    #: how a scale follows from the largest magnitude of its block (hwsim.quantize) (te, torchao, cublaslt; default: te)
    #: [nvfp4]
    #: how a scale follows from the largest magnitude of its block (hwsim.quantize) (cublaslt, deepgemm, te, torchao,
    #: floor, ceil, even, rceil; default: cublaslt) [fp8-block, fp8-row]
    rule: str | None

    #: bits of an element that slices hold; dynamic: as many as the data need for FP64's accuracy; 0: a native FP64
    #: product (at least 0 and at most 1000; default: dynamic) [fixedpoint-fp64]
    bits: int | Literal["dynamic"] | None

    #: dynamic: where more bits are needed, the product is one of native FP64 (at least 1 and at most 1000; default: 79)
    #: [fixedpoint-fp64]
    most_bits: int | None
