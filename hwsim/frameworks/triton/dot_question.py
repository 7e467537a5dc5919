"""One `tl.dot` or `tl.dot_scaled` as data: shapes, types, scales, what the kernel asked of it.

The module knows Triton's words; it knows no compiler, no device and no array.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

LEAST_SIDE, LEAST_K = 16, 64  # of a dot that every target of Triton's takes

PACKED = "e2m1"  # two elements in a byte, the low half first


@dataclass(frozen=True)
class DotScaling:
    """What `tl.dot_scaled` says beyond `tl.dot`.

    a_format, b_format: "e2m1", "e4m3", "e5m2", "bf16", "fp16". a_scale: shape (..., M, blocks of K) and Triton's
    element type ("uint8", "fp8e4nv"); b_scale: of (..., N, blocks of K); None: no scales. is_fast: NaNs among the
    scales are not looked for. a_along_k, b_along_k: e2m1 is packed along K, else along M or N.
    """

    a_format: str
    b_format: str
    a_scale: tuple[tuple[int, ...], str] | None
    b_scale: tuple[tuple[int, ...], str] | None
    is_fast: bool
    a_along_k: bool
    b_along_k: bool


@dataclass(frozen=True)
class DotQuestion:
    """One dot: shapes as stored, (..., M, K), (..., K, N); Triton's element types of a, b and of accumulator and
    result; input_precision as Triton spells it; max_num_imprecise_acc; warps of the program; whether the kernel
    multiplies from the constant zero and adds the accumulator; None or what `tl.dot_scaled` says.
    """

    a_shape: tuple[int, ...]
    b_shape: tuple[int, ...]
    a_type: str
    b_type: str
    d_type: str
    input_precision: str
    max_num_imprecise_acc: int
    num_warps: int
    is_added: bool = False
    scaling: DotScaling | None = None

    @property
    def formats(self) -> tuple[str, str]:
        """Of a and b: formats of a scaled dot, else element types."""
        return (self.a_type, self.b_type) if self.scaling is None else (self.scaling.a_format, self.scaling.b_format)

    @property
    def d_shape(self) -> tuple[int, ...]:
        """(..., M, N)."""
        m, n, s = self.a_shape[-2], self.b_shape[-1], self.scaling
        if s is not None:
            m *= 2 if s.a_format == PACKED and not s.a_along_k else 1
            n *= 2 if s.b_format == PACKED and not s.b_along_k else 1
        return (*self.a_shape[:-2], m, n)

    @property
    def k(self) -> int:
        """Elements of K."""
        s = self.scaling
        return self.a_shape[-1] * (2 if s is not None and s.a_format == PACKED and s.a_along_k else 1)

    @property
    def least(self) -> DotQuestion:
        """The same dot of one matrix of at most `LEAST_SIDE` rows and columns and `LEAST_K` of K, with their scales."""
        whole = (*self.d_shape[-2:], self.k)
        least_sides = [min(size, most) for size, most in zip(whole, (LEAST_SIDE, LEAST_SIDE, LEAST_K), strict=True)]

        def shorter(shape: tuple[int, ...], *sides: int) -> tuple[int, ...]:
            return tuple(size * least_sides[i] // whole[i] for size, i in zip(shape[-2:], sides, strict=True))

        s = self.scaling
        if s is not None:
            a_scale, b_scale = (
                None if x is None else (shorter(x[0], side, 2), x[1]) for side, x in enumerate((s.a_scale, s.b_scale))
            )
            s = replace(s, a_scale=a_scale, b_scale=b_scale)
        return replace(self, a_shape=shorter(self.a_shape, 0, 2), b_shape=shorter(self.b_shape, 2, 1), scaling=s)
