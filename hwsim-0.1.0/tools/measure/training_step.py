"""A training step on this machine's GPU beside hwsim.torch with library="cublas": which layers' bits are equal.

python tools/measure/training_step.py [--json FILE]

ReLU networks of several widths in bf16, fp16 and tf32, with and without bias, at three batch sizes: the output of every
layer, and the gradient of every weight, by PyTorch on the GPU (an H100 or H200) and on this machine's CPU under
hwsim.torch.emulate. Operands have full significands and many magnitudes. Of each result that differs it says its
product's sizes, the kernel and slices of K that hwsim takes, and the kernels that the GPU ran. Exits with 1 where
something differs.
"""

import argparse
import contextlib
import copy
import itertools
import json
import sys
from pathlib import Path

import numpy as np
import torch

import hwsim
import hwsim.torch
from hwsim.torch.tensors import array_of, layout

NETWORKS = ((784, 512, 256, 10), (768, 3072, 768), (1001, 1503, 99), (512, 2048, 512))
BATCHES = (7, 64, 256)
FORMATS = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32}
INTEGER = {2: torch.int16, 4: torch.int32}


def drawn(seed, *shape, dtype):
    rng = np.random.default_rng(seed)
    values = rng.integers(1 << 23, 1 << 24, shape) * 2.0 ** rng.integers(-30, -20, shape) * rng.choice([-1, 1], shape)
    return torch.from_numpy(values).to(dtype)


def network(sizes, *, bias, dtype):
    parts = []
    for seed, (k, n) in enumerate(itertools.pairwise(sizes)):
        layer = torch.nn.Linear(k, n, bias=bias, dtype=dtype)
        with torch.no_grad():
            layer.weight.copy_(drawn(seed, n, k, dtype=dtype) / 2.0 ** round(np.log2(np.sqrt(k))))
            if bias:
                layer.bias.copy_(drawn(seed + 50, n, dtype=dtype) / 8)
        parts += [layer, torch.nn.ReLU()]
    return torch.nn.Sequential(*parts[:-1])


def step(model, x, grad, run):
    """(outputs of the linear layers, gradients of their weights)"""
    layers = [part for part in model if isinstance(part, torch.nn.Linear)]
    outputs = []
    hooks = [part.register_forward_hook(lambda _, __, out: outputs.append(out.detach().cpu())) for part in layers]
    with run:
        model(x).backward(grad)
    for hook in hooks:
        hook.remove()
    return outputs, [part.weight.grad.cpu() for part in layers]


def same(x, y):
    return torch.equal(*(z.view(INTEGER[z.element_size()]) for z in (x, y)))


def taken_here(device, name, a, b, bias=None):
    """What hwsim's library runs for a product of two tensors."""
    more = {} if bias is None else {"bias": array_of(bias)}
    result = hwsim.run(
        *(array_of(x) for x in (a, b)),
        device=device,
        library="cublas",
        format=name,
        output="fp32" if name == "tf32" else name,
        a_layout=layout(a),
        b_layout=layout(b),
        rows=[0],
        timing=False,
        **more,
    )
    said = {one.name: f"{one.value} ({one.why})" if one.why else one.value for one in result.gemm.decisions}
    return ", ".join(f"{key}: {said[key]}" for key in ("kernel", "split_k", "order of summation") if key in said)


def taken_there(call):
    """Names of the kernels that the GPU runs for it."""
    call()
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profile:
        call()
        torch.cuda.synchronize()
    return [event.name for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]


def explain(device, row, dtype):
    """A line for each product of a step whose bits differ though those of all products before it are equal."""
    name, batch, outputs, gradients = (row[key] for key in ("format", "batch", "outputs", "gradients"))
    for index, (k, n) in enumerate(itertools.pairwise(row["sizes"])):
        x, w, y = (torch.zeros(*shape, dtype=dtype) for shape in ((batch, k), (n, k), (batch, n)))
        bias = torch.zeros(n, dtype=dtype) if row["bias"] else None
        if not outputs[index] and all(outputs[:index]):
            given = [None if one is None else one.cuda() for one in (x, w, bias)]
            there = taken_there(lambda given=given: torch.nn.functional.linear(*given))
            print(f"  output {index}, {batch} x {n} x {k}: {taken_here(device, name, x, w.t(), bias)}; GPU: {there}")
        if not gradients[index] and all(outputs) and all(gradients[index + 1 :]):
            given = [y.cuda().t(), x.cuda()]
            there = taken_there(lambda given=given: torch.mm(*given))
            print(f"  gradient {index}, {n} x {k} x {batch}: {taken_here(device, name, y.t(), x)}; GPU: {there}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    chip = torch.cuda.get_device_name()
    device = next((name for name in ("h200", "h100") if name.upper() in chip), None)
    if device is None:
        sys.exit(f"{chip}: the library's choices are known for H100 and H200")
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    rows = []
    for (name, dtype), sizes, batch, bias in itertools.product(FORMATS.items(), NETWORKS, BATCHES, (True, False)):
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        model, x = network(sizes, bias=bias, dtype=dtype), drawn(99, batch, sizes[0], dtype=dtype)
        grad = drawn(7, batch, sizes[-1], dtype=dtype)
        chip_step = step(copy.deepcopy(model).cuda(), x.cuda(), grad.cuda(), contextlib.nullcontext())
        run = hwsim.torch.emulate(device=device, library="cublas", format=name, measure_every=0)
        outputs, gradients = (
            [same(one, other) for one, other in zip(*pair, strict=True)]
            for pair in zip(chip_step, step(model, x, grad, run), strict=True)
        )
        rows.append(
            {"format": name, "sizes": sizes, "batch": batch, "bias": bias, "outputs": outputs, "gradients": gradients}
        )
        if not all(outputs + gradients):
            print(f"differs: {name} {sizes}, batch {batch}, bias {bias}: outputs {outputs}, gradients {gradients}")
            explain(device, rows[-1], dtype)
    print(f"{chip}, PyTorch {torch.__version__}")
    for name in FORMATS:
        own = [row for row in rows if row["format"] == name]
        said = [f"{name}:"]
        for kind, what in (("outputs", "layers' outputs"), ("gradients", "weights' gradients")):
            found = [one for row in own for one in row[kind]]
            said.append(f"{sum(found)} of {len(found)} {what} equal")
        print(" ".join(said))
    if given.json:
        given.json.write_text(json.dumps({"chip": chip, "torch": torch.__version__, "rows": rows}))
    return int(not all(all(row["outputs"] + row["gradients"]) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
