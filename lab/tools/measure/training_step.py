"""A training step on this machine's GPU beside hwsim.torch with library="cublas": which layers' bits are equal.

python lab/tools/measure/training_step.py [--json FILE]

ReLU networks of several widths in bf16, fp16 and tf32, with and without bias, at three batch sizes: the output of every
layer, and the gradient of every weight, by PyTorch on the GPU (an H100 or H200) and on this machine's CPU under
hwsim.torch.emulate. Operands have full significands and many magnitudes. Where a network differs, each product of its
step is computed again here from the GPU's own operands; of those that differ it says the operands' sizes and strides,
what hwsim takes (kernel, slices of K, order of summation), the kernels that the GPU ran, and some of the elements.
FILE is written anew after every network, and holds what failed beside what was found.
Exits with 1 where something differs, with 2 where something could not be compared.
"""

import argparse
import copy
import itertools
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import hwsim
import hwsim.torch
from hwsim.frameworks.torch.tensors import array_of, layout

NETWORKS = ((784, 512, 256, 10), (768, 3072, 768), (1001, 1503, 99), (512, 2048, 512))
BATCHES = (7, 64, 256)
FORMATS = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32}
INTEGER = {2: torch.int16, 4: torch.int32}
SAMPLE = 16  # elements that differ, of each product


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


class Products(TorchDispatchMode):
    """Keeps the products inside: (operator, its operands, the result)."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
            self.seen.append((func, args, made))
        return made


def taken_here(settings, a, b, bias=None):
    """{decision: value} of what hwsim's library runs for a product of two tensors."""
    more = {} if bias is None else {"bias": array_of(bias)}
    name = settings["format"]
    result = hwsim.run(
        *(array_of(x) for x in (a, b)),
        **settings,
        output="fp32" if name == "tf32" else name,
        a_layout=layout(a),
        b_layout=layout(b),
        rows=[0],
        timing=False,
        **more,
    )
    return {one.name: f"{one.value} ({one.why})" if one.why else one.value for one in result.gemm.decisions}


def taken_there(call):
    """The kernels that the GPU runs for it: name, grid, block, shared memory. Raises RuntimeError where the profiler
    sees none.
    """
    call()
    torch.cuda.synchronize()
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profile:
        call()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        found = kernels_of(json.loads(path.read_text()))
    if not found:
        raise RuntimeError("the profiler saw no kernel: does this process have access to the GPU's CUPTI?")
    return found


def kernels_of(trace):
    """The GPU's work in a trace of PyTorch's profiler, in order of time."""
    kinds = ("kernel", "gpu_memset", "gpu_memcpy")
    events = sorted((one for one in trace["traceEvents"] if one.get("cat") in kinds), key=lambda one: one["ts"])
    wanted = ("grid", "block", "shared memory", "registers per thread")
    return [{"name": one["name"]} | {key: one["args"][key] for key in wanted if key in one["args"]} for one in events]


def tried(call: Callable[[], Any]) -> Any:
    """What `call` gives, or {"error": its traceback}: one part that fails takes no other with it."""
    try:
        return call()
    except Exception:
        print(traceback.format_exc(limit=-3), flush=True)
        return {"error": traceback.format_exc()}


def product(settings, func, args, there):
    """One product of a step, computed here from the GPU's operands."""
    operands = [one.detach().cpu() for one in args]
    with hwsim.torch.emulate(**settings, measure_every=0) as run:
        here = func(*operands)
    if run.not_caught:
        raise RuntimeError(f"not caught: {dict(run.not_caught)}")
    there = there.cpu()
    said = {
        "operator": str(func),
        "operands": [{"shape": list(one.shape), "strides": list(one.stride())} for one in operands],
        "equal": same(here, there),
    }
    if said["equal"]:
        return said
    codes = [one.contiguous().view(INTEGER[one.element_size()]) for one in (here, there)]
    places = (codes[0] != codes[1]).nonzero()
    said |= {
        "different": f"{len(places)} of {here.numel()}",
        "sample": [
            {"element": place, "here": here[tuple(place)].item(), "GPU": there[tuple(place)].item()}
            for place in places[:: max(1, len(places) // SAMPLE)].tolist()
        ],
        "GPU gives the same again": tried(lambda: same(func(*args).cpu(), there)),
        "taken here": tried(lambda: taken_here(settings, *operands[-2:], *operands[:-2])),
        "kernels of the GPU": tried(lambda: taken_there(lambda: func(*args))),
    }
    return said


def compared(settings, row, dtype):
    """`row` with what is equal; where a network differs, with its products."""
    sizes, batch, bias = row["sizes"], row["batch"], row["bias"]
    model, x = network(sizes, bias=bias, dtype=dtype), drawn(99, batch, sizes[0], dtype=dtype)
    grad = drawn(7, batch, sizes[-1], dtype=dtype)
    products = Products()
    chip_step = step(copy.deepcopy(model).cuda(), x.cuda(), grad.cuda(), products)
    run = hwsim.torch.emulate(**settings, measure_every=0)
    for kind, here, there in zip(("outputs", "gradients"), step(model, x, grad, run), chip_step, strict=True):
        row[kind] = [same(one, other) for one, other in zip(here, there, strict=True)]
    if not all(row["outputs"] + row["gradients"]):
        row["products"] = [tried(lambda one=one: product(settings, *one)) for one in products.seen]
    return row


def told(row):
    """What is worth saying of a network that differs."""
    print(f"  differs: outputs {row['outputs']}, gradients {row['gradients']}")
    for one in row["products"]:
        if not one.get("equal", "error" in one):
            shapes = " by ".join(f"{part['shape']} of strides {part['strides']}" for part in one["operands"])
            kernels = one["kernels of the GPU"]
            there = kernels if "error" in kernels else [f"{each['name']} {each.get('grid', '')}" for each in kernels]
            here = one["taken here"]
            known = {key: here[key] for key in ("kernel", "split_k", "order of summation") if key in here} or here
            print(f"  {one['operator']} {shapes}: {one['different']} differ; here {known}; GPU {there}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("training_step: PyTorch sees no GPU here; this needs an H100 or H200", file=sys.stderr)
        return 2
    chip = torch.cuda.get_device_name()
    device = next((name for name in ("h200", "h100") if name.upper() in chip), None)
    if device is None:
        print(f"training_step: {chip}: the library's choices are known for H100 and H200", file=sys.stderr)
        return 2
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    print(f"{chip}, PyTorch {torch.__version__}, CUDA {torch.version.cuda}", flush=True)
    rows = []
    said = {"chip": chip, "torch": str(torch.__version__), "cuda": torch.version.cuda, "rows": rows}
    networks = list(itertools.product(FORMATS.items(), NETWORKS, BATCHES, (True, False)))
    start = time.monotonic()
    for index, ((name, dtype), sizes, batch, bias) in enumerate(networks, 1):
        where = f"{name} {sizes}, batch {batch}, bias {bias}"
        print(f"{index} of {len(networks)}, {time.monotonic() - start:.0f} s: {where}", flush=True)
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        settings = {"device": device, "library": "cublas", "format": name}
        row = {"format": name, "sizes": sizes, "batch": batch, "bias": bias}
        row |= tried(lambda settings=settings, row=row, dtype=dtype: compared(settings, row, dtype))
        rows.append(row)
        if "products" in row:
            tried(lambda row=row: told(row))
        if given.json:
            written = given.json.with_name(given.json.name + ".part")
            written.write_text(json.dumps(said, indent=1))
            written.replace(given.json)
    for name in FORMATS:
        own = [row for row in rows if row["format"] == name and "error" not in row]
        line = [f"{name}:"]
        for kind, what in (("outputs", "layers' outputs"), ("gradients", "weights' gradients")):
            found = [one for row in own for one in row[kind]]
            line.append(f"{sum(found)} of {len(found)} {what} equal")
        print(" ".join(line))
    parts = [part for row in rows for part in (row, *row.get("products", ()))]
    if failed := sum("error" in part for part in parts):
        print(f"{failed} networks or products could not be compared")
        return 2
    return int(not all(all(row["outputs"] + row["gradients"]) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
