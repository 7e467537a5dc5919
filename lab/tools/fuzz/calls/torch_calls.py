"""PyTorch's calls inside hwsim.torch.emulate, in eager code."""

import itertools

import ml_dtypes
import numpy as np
import torch
from torch.nn import functional

import hwsim.torch

from .operands import EQUATIONS, EXTENTS, NARROW, compare, contraction, drawn, product, stacked

DTYPES = {x: getattr(torch, x) for x in ("float32", "float64", "float16", "bfloat16")}


def array(x):
    """A tensor's numbers."""
    x = x.detach().contiguous()
    return x.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if x.dtype == torch.bfloat16 else x.numpy()


def of_array(x):
    """The tensor of an array."""
    x = np.ascontiguousarray(x)
    return (
        torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
        if x.dtype == ml_dtypes.bfloat16
        else torch.from_numpy(x)
    )


class Case:
    """What a call draws, and the products that it stands for."""

    def __init__(self, rng, number, settings):
        self.rng, self.data, self.settings = rng, np.random.default_rng(number), settings
        self.dtype = rng.choice(("float32", "float32", "float64", "float16", "bfloat16", "bfloat16"))
        self.m, self.k, self.n = (rng.choice(EXTENTS) for _ in range(3))

    def plain(self, *shape):
        """A contiguous tensor."""
        return of_array(drawn(self.rng, self.data, shape, self.dtype))

    def tensor(self, *shape):
        """A tensor of some strides: contiguous, transposed, every second element, broadcast, or a part."""
        kind = self.rng.choice(("plain", "transposed", "every second", "broadcast", "part"))
        shape = list(shape)
        if kind == "transposed" and len(shape) > 1:
            return self.plain(*shape[:-2], shape[-1], shape[-2]).mT
        if kind == "every second":
            return self.plain(*shape[:-1], 2 * shape[-1])[..., ::2]
        if kind == "broadcast":
            axis = self.rng.randrange(len(shape))
            return self.plain(*shape[:axis], 1, *shape[axis + 1 :]).expand(shape)
        if kind == "part":
            return self.plain(shape[0] + 1, *shape[1:])[1:]
        return self.plain(*shape)

    def product(self, a, b, **more):
        """A B of matrices or stacks, as a tensor."""
        a, b = array(a), array(b)
        made = (product if a.ndim == 2 else stacked)(self.settings, a, b, self.dtype, **more)
        return of_array(made)

    def convolution(self, x, w, bias, stride, padding, dilation, groups):
        """Of images (N, C, H, W): the windows of each group as rows, channels first along K, by the group's weights."""
        window = {"kernel_size": w.shape[2:], "stride": stride, "dilation": dilation}
        padded = functional.pad(x, (padding[1], padding[1], padding[0], padding[0]))
        columns = (
            functional.unfold(padded.double(), **window).to(x.dtype).unflatten(1, (groups, -1))
        )  # (N, groups, K, pixels)
        size = [
            (h - d * (r - 1) - 1) // s + 1
            for h, d, r, s in zip(padded.shape[2:], dilation, w.shape[2:], stride, strict=True)
        ]
        parts = []
        for i, part in enumerate(w.chunk(groups)):
            more = {} if bias is None else {"bias": array(bias.chunk(groups)[i])}
            made = self.product(columns[:, i].mT.flatten(0, 1), part.flatten(1).T, **more)
            parts.append(made.unflatten(0, (len(x), *size)).movedim(-1, 1))
        return torch.cat(parts, 1)

    def transposed(self, x, w, stride, dilation, groups):
        """The transposed convolution: of x with gaps, by the reversed weights. A pixel's terms are those of taps that
        meet no gap; zeros beyond the edges count.
        """
        wide = x.new_zeros((*x.shape[:2], *((h - 1) * s + 1 for h, s in zip(x.shape[2:], stride, strict=True))))
        wide[:, :, :: stride[0], :: stride[1]] = x
        around = [d * (r - 1) for d, r in zip(dilation, w.shape[2:], strict=True)]
        padded = functional.pad(wide, (around[1], around[1], around[0], around[0]))
        turned = torch.cat([part.transpose(0, 1) for part in w.flip((2, 3)).chunk(groups)])
        size = [h + a for h, a in zip(wide.shape[2:], around, strict=True)]
        out = x.new_zeros((len(x), len(turned), *size))
        for place in itertools.product(*(range(min(s, h)) for s, h in zip(stride, size, strict=True))):
            taps = [
                [r for r in range(count) if (at + r * d - a) % s == 0]
                for at, count, d, a, s in zip(place, w.shape[2:], dilation, around, stride, strict=True)
            ]
            if not all(taps):
                continue
            few = [-(-(h - at) // s) for h, at, s in zip(size, place, stride, strict=True)]
            met = [
                [slice(at + r * d, at + r * d + (n - 1) * s + 1, s) for r in own]
                for at, own, d, s, n in zip(place, taps, dilation, stride, few, strict=True)
            ]
            windows = torch.stack([padded[:, :, down, along] for down in met[0] for along in met[1]], 2)
            columns = windows.flatten(3).unflatten(1, (groups, -1)).flatten(2, 3)  # (N, groups, K, pixels)
            part = turned[:, :, taps[0]][:, :, :, taps[1]]
            made = [
                self.product(columns[:, g].mT.flatten(0, 1), own.flatten(1).T).unflatten(0, (len(x), *few))
                for g, own in enumerate(part.chunk(groups))
            ]
            out[:, :, place[0] :: stride[0], place[1] :: stride[1]] = torch.cat(made, -1).movedim(-1, 1)
        return out


def mm(x):
    a, b = x.tensor(x.m, x.k), x.tensor(x.k, x.n)
    call = x.rng.choice((torch.mm, torch.matmul, lambda a, b: a @ b, lambda a, b: torch.inner(a, b.T)))
    return call(a, b), lambda: x.product(a, b)


def vectors(x):
    a, b, c = x.tensor(x.m, x.k), x.tensor(x.k), x.tensor(x.k)
    if x.rng.random() < 0.5:
        return a @ b, lambda: x.product(a, b[:, None])[:, 0]
    return torch.dot(b, c), lambda: x.product(b[None], c[:, None])[0, 0]


def is_one_matrix(stack):
    """Whether PyTorch multiplies the rows of a stack by a matrix in one product: they follow one another in memory."""
    shape, strides = stack.shape, stack.stride()
    return all(strides[i] == strides[i + 1] * shape[i + 1] for i in range(stack.dim() - 2))


def matmul(x):
    leads = x.rng.choice((((2,), (2,)), ((3, 1), (2,)), ((2, 3), (1, 3)), ((), (3,)), ((2, 2), ())))
    a, b = x.tensor(*leads[0], x.m, x.k), x.tensor(*leads[1], x.k, x.n)

    def expected():
        if not leads[1] and is_one_matrix(a):
            return x.product(a.reshape(-1, x.k), b).reshape(*leads[0], x.m, x.n)
        lead = torch.broadcast_shapes(*leads)
        one, two = (y.expand(*lead, *y.shape[-2:]).reshape(-1, *y.shape[-2:]) for y in (a, b))
        return x.product(one, two).reshape(*lead, x.m, x.n)

    return a @ b, expected


def added(x):
    """addmm, or baddbmm."""
    count = x.rng.choice(((), (1,), (4,)))
    a, b = x.tensor(*count, x.m, x.k), x.tensor(*count, x.k, x.n)
    c = x.tensor(*x.rng.choice(((*count, x.m, x.n), (x.n,), (1, x.n), (x.m, 1))))
    alpha, beta = x.rng.choice((1, 2, 0.5, -3)), x.rng.choice((1, 0.5, 0, -1))

    def expected():
        whole = array(c.expand(*count, x.m, x.n))
        own = [{} if beta == 0 else {"c": one, "beta": float(beta)} for one in (whole if count else [whole])]
        pairs = zip(a, b, own, strict=True) if count else [(a, b, own[0])]
        made = [x.product(one, two, alpha=float(alpha), **more) for one, two, more in pairs]
        return torch.stack(made) if count else made[0]

    call = torch.baddbmm if count else torch.addmm
    return call(c, a, b, alpha=alpha, beta=beta), expected


def linear(x):
    lead = x.rng.choice(((), (2,), (2, 3)))
    a, w = x.tensor(*lead, x.m, x.k), x.tensor(x.n, x.k)
    bias = x.tensor(x.n) if x.rng.random() < 0.6 else None

    def expected():
        if not lead or (bias is not None and a.is_contiguous()):
            more = {} if bias is None else {"bias": array(bias)}
            return x.product(a.reshape(-1, x.k), w.T, **more).reshape(*lead, x.m, x.n)
        parts = [a.reshape(-1, x.k)] if is_one_matrix(a) else a.reshape(-1, x.m, x.k)
        made = torch.cat([x.product(part, w.T) for part in parts]).reshape(*lead, x.m, x.n)
        return made if bias is None else made + bias

    return functional.linear(a, w, bias), expected


def einsum(x):
    equation = x.rng.choice(EQUATIONS)
    sizes = {"i": x.m, "j": x.k, "k": x.n, "l": 3, "b": 2, "h": 3, "d": 5}
    a, b = (x.tensor(*(sizes[y] for y in own)) for own in equation.partition("->")[0].split(","))
    multiply = lambda one, two: stacked(x.settings, one, two, x.dtype)  # noqa: E731
    return torch.einsum(equation, a, b), lambda: of_array(contraction(equation, sizes, array(a), array(b), multiply))


def tensordot(x):
    a, b = x.tensor(x.m, 2, x.k), x.tensor(x.k, x.n, 2)
    made = torch.tensordot(a, b, dims=([1, 2], [2, 0]))
    return made, lambda: x.product(a.reshape(x.m, -1), b.permute(2, 0, 1).reshape(-1, x.n))


def window(x):
    """Images, weights, a bias or none, and (stride, padding, dilation, groups) that fit."""
    channels, out, groups = x.rng.choice(((3, 4, 1), (4, 6, 2), (1, 2, 1), (4, 4, 4)))
    size = [x.rng.choice((1, 2, 3)) for _ in range(2)]
    stride, padding, dilation = ([x.rng.choice(own) for _ in range(2)] for own in ((1, 2), (0, 1), (1, 2)))
    image = [d * (r - 1) + 1 + x.rng.choice((0, 1, 4)) for d, r in zip(dilation, size, strict=True)]
    w, bias = x.plain(out, channels // groups, *size), x.plain(out) if x.rng.random() < 0.5 else None
    return x.plain(2, channels, *image), w, bias, (stride, padding, dilation, groups)


def convolution(x):
    images, w, bias, how = window(x)
    return functional.conv2d(images, w, bias, *how), lambda: x.convolution(images, w, bias, *how)


def transposed_convolution(x):
    images, w, _, (stride, _, dilation, groups) = window(x)
    few = x.plain(2, w.shape[0], *images.shape[2:])
    bias = x.plain(w.shape[1] * groups) if x.rng.random() < 0.5 else None
    made = functional.conv_transpose2d(few, w, bias, stride, 0, 0, groups, dilation)

    def expected():
        whole = x.transposed(few, w, stride, dilation, groups)
        return whole if bias is None else whole + bias[:, None, None]  # as PyTorch adds it, to the rounded result

    return made, expected


def convolution_gradients(x):
    images, w, _, how = window(x)
    images.requires_grad_(), w.requires_grad_()
    made = functional.conv2d(images, w, None, *how)
    given = x.plain(*made.shape)
    gradient = torch.autograd.grad(made, w, given)[0]

    def expected():
        stride, padding, dilation, groups = how
        padded = functional.pad(images.detach(), (padding[1], padding[1], padding[0], padding[0])).double()
        columns = functional.unfold(padded, w.shape[2:], dilation=dilation, stride=stride).to(w.dtype)
        columns = columns.unflatten(1, (groups, -1)).permute(1, 0, 3, 2).flatten(1, 2)  # (groups, N * pixels, K)
        left = given.flatten(2).unflatten(1, (groups, -1)).permute(1, 2, 0, 3).flatten(2)  # (groups, O, N * pixels)
        return x.product(left, columns).reshape(w.shape)

    return gradient, expected


def gradients(x):
    """Of contiguous operands, whose gradients PyTorch's formulas do not transpose."""
    a, b = x.plain(x.m, x.k).requires_grad_(), x.plain(x.k, x.n).requires_grad_()
    given = x.plain(x.m, x.n)
    of_a, of_b = torch.autograd.grad(a @ b, (a, b), given)
    made = torch.cat([of_a.flatten(), of_b.flatten()])
    return made, lambda: torch.cat([x.product(given, b.T).flatten(), x.product(a.T, given).flatten()])


def mapped(x):
    """torch.vmap of a linear layer or a convolution beside a loop."""
    images, w, _, how = window(x)
    if x.rng.random() < 0.5:
        given = [x.plain(3, x.m, x.k), x.plain(3, x.n, x.k), x.plain(3, x.n)]
        call = functional.linear
        one = lambda a, v, c: x.product(a, v.T, bias=array(c))  # noqa: E731
    else:
        given = [x.plain(3, *y.shape) for y in (images, w, w[:, 0, 0, 0])]
        call = lambda a, v, c: functional.conv2d(a, v, c, *how)  # noqa: E731
        one = lambda a, v, c: x.convolution(a, v, c, *how)  # noqa: E731
    dims = x.rng.choice([y for y in itertools.product((0, None), repeat=3) if y != (None,) * 3])
    own = [y if dim == 0 else y[0] for y, dim in zip(given, dims, strict=True)]

    def expected():
        each = ([y[i] if dim == 0 else y for y, dim in zip(own, dims, strict=True)] for i in range(3))
        return torch.stack([one(*each_own) for each_own in each])

    return torch.vmap(call, dims)(*own), expected


def autocast(x):
    a, w, bias = (y.float() for y in (x.plain(x.m, x.k), x.plain(x.n, x.k), x.plain(x.n)))
    x.dtype = x.rng.choice(sorted(NARROW))
    with torch.autocast("cpu", DTYPES[x.dtype]):
        made = functional.linear(a, w, bias)
    a, w, bias = (y.to(DTYPES[x.dtype]) for y in (a, w, bias))
    return made, lambda: x.product(a, w.T, bias=array(bias))


def attention(x):
    q, k, v = x.tensor(2, x.m, x.k), x.tensor(2, x.n, x.k), x.tensor(2, x.n, 5)

    def expected():
        """ATen's math form: both operands of the scores scaled, 16 bits taken to fp32 where the device has fp32."""
        result_dtype, root = x.dtype, x.k**-0.25
        is_plain = not {"scheme", "format"} & set(x.settings)
        is_wide = x.dtype in NARROW and not (is_plain and "fp32" not in hwsim.device(x.settings["device"]).native)
        x.dtype = "float32" if is_wide else x.dtype
        a, b, c = (y.float() if is_wide else y for y in (q, k, v))
        scores = x.product(a * root, (b.mT * root))
        weights = scores.softmax(-1).masked_fill((scores == -torch.inf).all(-1, keepdim=True), 0)
        return x.product(weights, c).to(DTYPES[result_dtype])

    return functional.scaled_dot_product_attention(q, k, v), expected


CALLS = {
    call.__name__: call
    for call in (
        *(mm, vectors, matmul, added, linear, einsum, tensordot, convolution, transposed_convolution),
        *(convolution_gradients, gradients, mapped, autocast, attention),
    )
}


def case(rng, number, settings):
    """(call, dtype) of one compared call."""
    torch.set_num_threads(1)
    name = rng.choice(sorted(CALLS))
    drawn_case = Case(rng, number, settings)
    with hwsim.torch.emulate(**settings, measure_every=0) as run:
        made, expected = CALLS[name](drawn_case)
    assert not run.not_caught, (name, run.not_caught)
    x = drawn_case
    said = f"torch {name} {x.dtype} {settings} {(x.m, x.k, x.n)}"
    compare(said, array(made), array(expected()))
    return name, x.dtype
