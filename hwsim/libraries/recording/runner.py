"""Runs GEMMs of a sample by PyTorch: the bits of a block, and the time beyond a launch.

It knows PyTorch's calls (`pytorch_gemms`) and blocks; not what hwsim has for them.
"""

from __future__ import annotations

from contextlib import suppress

from hwsim.libraries.recording.compare import GemmBlock, Ran
from hwsim.libraries.recording.pytorch_gemms import PytorchGemms, stored
from hwsim.libraries.recording.shapes import GemmShape

LaunchKey = tuple[str, str, bool | None, bool]


class PytorchRunner:
    """A `GemmRunner` on PyTorch's current CUDA device."""

    def __init__(self, gemms: PytorchGemms) -> None:
        self.gemms = gemms
        self.launches: dict[LaunchKey, float] = {}

    def run(self, shape: GemmShape, block: GemmBlock) -> Ran:
        """One GEMM whose rows and columns of the block are the block's operands, the others random.

        Raises RuntimeError or ValueError, PyTorch's, for what it refuses and where the GPU's memory does not suffice.
        """
        gemms, form = self.gemms, shape.form
        m, n, k = shape.sizes
        at, over = (gemms.torch.from_numpy(places).cuda() for places in (block.rows, block.columns))
        a, weight, bias = gemms.fill(m, k, form.format), gemms.fill(n, k, form.format), None
        a[at] = gemms.tensor(block.a, form.format)
        weight[over] = gemms.tensor(block.b.T, form.format)
        if block.bias is not None:
            bias = gemms.fill(1, n, form.output)[0]
            bias[over] = gemms.tensor(block.bias, form.output)
        a, b = stored(a, form.a_layout == "columns"), stored(weight, form.b_layout == "rows").t()
        work = gemms.call(form.format, form.output, form.fast, a, b, bias)
        d = work()[at[:, None], over[None, :]]
        gemms.torch.cuda.synchronize()
        kernels: tuple[str, ...] = ()
        with suppress(RuntimeError):  # no profiler here: the names are for people
            kernels = tuple(gemms.kernels(work))
        measured = gemms.microseconds(work, m * n * k) - self._launch(shape)
        return Ran(gemms.words(d, form.output), max(measured, 0.0), kernels)

    def _launch(self, shape: GemmShape) -> float:
        form = shape.form
        key: LaunchKey = (form.format, form.output, form.fast, form.bias)
        if key not in self.launches:
            self.launches[key] = self.gemms.launch_microseconds(*key)
        return self.launches[key]
