"""The Triton products of batch-invariant inference: one tile for each format of operands, whatever the sizes.

The module knows these tiles as data, and for which families Triton lowers them to the device's own instruction; it
knows no device.

Sources: vLLM 0188c010 (model_executor/layers/batch_invariant.py), which took the kernel from batch_invariant_ops of
Thinking Machines Lab. One accumulator in fp32 takes all of K in order, in blocks whose missing elements are zeros. A
bias is added to it in fp32 (vLLM: torch.addmm alone), then it is rounded to the format of the result. vLLM's
torch.nn.functional.linear rounds first and adds the bias to that. This vLLM puts the kernel in the place of PyTorch's
products on compute capability 8.x alone; on others it limits cuBLAS's workspace. The original (3d56b5a9) rounds to fp16
before bf16: its bf16 results are other ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hwsim.devices import load
from hwsim.errors import UnsupportedError
from hwsim.gemm.record import LibraryId
from hwsim.libraries.gemm_call import OperationCall
from hwsim.libraries.kernel_choice import LibraryChoice, SummationOrder
from hwsim.libraries.protocol import ChipRules, LibraryProvider, LibraryRequest, LibraryRules, gemm_of

NAME, VERSION = "batch-invariant", "0188c010"
EVIDENCE = "datasheet"  # the published source
FAMILIES = "sm80", "sm90"  # with eight warps, a tile is of mma.sync and of wgmma


class TritonTile(NamedTuple):
    """Elements of C that a CTA computes (m, n), elements of K of a block, and blocks in flight."""

    m: int
    n: int
    k: int
    stages: int


TILES = {"bf16": TritonTile(128, 128, 64, 3), "fp16": TritonTile(128, 256, 64, 3)}
NARROW = {"bf16": TILES["bf16"], "fp16": TritonTile(128, 128, 64, 3)}  # on chips with less shared memory
WIDE_ABOVE_BYTES = 106496  # of shared memory: enable_batch_invariant_mode of vLLM


class BatchInvariant(LibraryProvider):
    """The library of these products, whatever the version of Triton."""

    name = NAME
    files: tuple[str, ...] = ()

    def on(self, request: LibraryRequest) -> TileRules:
        """Its kernels on a device. Raises UnsupportedError for another version, and for chips that it is not known
        on.
        """
        chip = load(request.device)
        if request.version not in (None, VERSION):
            raise UnsupportedError(f"{NAME}: no version {request.version!r}; there is {VERSION!r}")
        if chip.family not in FAMILIES:
            raise UnsupportedError(
                f"{NAME}: hwsim knows its kernels on chips of {', '.join(FAMILIES)}; {chip.name} is of {chip.family}; "
                "leave library out"
            )
        shared = chip.memories["SMEM"].capacity_bytes
        return TileRules(chip.name, chip.cores, TILES if shared > WIDE_ABOVE_BYTES else NARROW)

    def from_file(self, path: Path, request: LibraryRequest) -> LibraryRules:
        """Raises UnsupportedError: it has no files of answers."""
        raise UnsupportedError(f"{path}: library {NAME} reads no file of answers")


@dataclass(frozen=True, slots=True)
class TileRules(ChipRules):
    """The same kernel for all sizes, on one chip. tiles: by format."""

    tiles: Mapping[str, TritonTile]

    @property
    def id(self) -> LibraryId:
        """Name and version."""
        return LibraryId(NAME, VERSION)

    def choose(self, call: OperationCall) -> LibraryChoice:
        """The kernel for the call's format. Raises UnsupportedError where the library has none."""
        gemm = gemm_of(call, self.id)
        tile = self.tiles.get(gemm.format)
        refused = {
            f"operands of {gemm.format}": tile is None or gemm.format_b not in (None, gemm.format),
            f"a result of {gemm.output}, another format than the operands": gemm.output not in (None, gemm.format),
            "scales": gemm.scales is not None,
            "a stack of matrices": gemm.batch > 1,
            "alpha, beta or C": gemm.has_c or gemm.is_scaled,
            "sparsity": gemm.sparsity is not None,
        }
        reasons = [name for name, is_refused in refused.items() if is_refused]
        if tile is None or reasons:
            raise UnsupportedError(
                f"library {NAME}: {', '.join(reasons)}; hwsim knows its products of {' and '.join(self.tiles)}, "
                "with a bias or without, and results in the operands' format"
            )
        return LibraryChoice(
            family="matmul_kernel_persistent",
            kernel=f"matmul_kernel_persistent {tile.m}x{tile.n}x{tile.k}",
            operand=gemm.format,
            tile=(tile.m, tile.n),
            tile_k=tile.k,
            stages=tile.stages,
            evidence=EVIDENCE,
        )

    def order(self, call: OperationCall, choice: LibraryChoice) -> SummationOrder:
        """One chain in order of K."""
        return choice.order


BATCH_INVARIANT = BatchInvariant()
