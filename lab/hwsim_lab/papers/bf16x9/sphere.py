"""A spectral transform on the sphere whose Legendre transforms are GEMMs by a function that is given, as in ecTrans.

It knows Gauss latitudes, associated Legendre functions, the symmetry of the hemispheres, wind from vorticity and
divergence, and test fields. Zonal wave numbers do not mix in it, so a sample of them can be run alone. The Legendre
functions are made in extended precision and stored in FP32; everything beside the GEMMs (FFT too) is FP32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
#: (stack, m, k) by (stack, k, n), FP32.
Product = Callable[[Array, Array], Array]
EARTH_RADIUS = 6.371e6  # m
MEAN_K, RANGE_K, FASTEST = 250.0, 110.0, 50.0  # temperature's mean and range; m/s


@dataclass(frozen=True)
class Sphere:
    """A truncation, the zonal wave numbers that are carried, and a grid of 2 (truncation + 1) Gauss latitudes.

    longitudes: of each latitude; more than twice the last wave number.
    """

    truncation: int
    orders: tuple[int, ...]
    longitudes: int

    @property
    def latitudes(self) -> int:
        """Cubic grid: twice as many as total wave numbers."""
        return 2 * (self.truncation + 1)

    @property
    def degrees(self) -> int:
        """Total wave numbers n - m taken of an order: to truncation + 1, which winds need; even."""
        count = self.truncation + 2 - min(self.orders)
        return count + count % 2

    @cached_property
    def numbers(self) -> tuple[Array, Array]:
        """m and n by order and place."""
        m = np.array(self.orders)[:, None]
        return m, m + np.arange(self.degrees)

    @cached_property
    def _gauss(self) -> tuple[Array, Array]:
        """Sines of the northern latitudes and weights, by Newton's method."""
        count = self.latitudes
        x = np.cos(np.pi * (np.arange(1, count // 2 + 1) - 0.25) / (count + 0.5)).astype(np.longdouble)
        slope = np.ones_like(x)
        for _ in range(6):
            below, value = np.ones_like(x), x
            for n in range(2, count + 1):
                below, value = value, ((2 * n - 1) * x * value - (n - 1) * below) / n
            slope = count * (x * value - below) / (x * x - 1)
            x = x - value / slope
        return x, 2 / ((1 - x * x) * slope**2)

    @cached_property
    def cosines(self) -> Array:
        """Of all latitudes, north to south."""
        x = self._gauss[0]
        north = np.sqrt(1 - x * x).astype(np.float64)
        return np.concatenate([north, north[::-1]])

    @cached_property
    def weights(self) -> Array:
        """Of the northern latitudes."""
        return self._gauss[1].astype(np.float64)

    @cached_property
    def functions(self) -> Array:
        """Normalized associated Legendre functions, fp64: order, parity of n - m, northern latitude, degree."""
        x = self._gauss[0]
        found = np.zeros((len(self.orders), 2, len(x), self.degrees // 2))
        sectoral, m = np.full_like(x, np.sqrt(np.longdouble(0.5))), 0
        for at, order in enumerate(self.orders):
            while m < order:
                m += 1
                sectoral = sectoral * np.sqrt(np.longdouble(2 * m + 1) / (2 * m)) * np.sqrt(1 - x * x)
            below, value = np.zeros_like(x), sectoral
            for n in range(m, self.truncation + 2):
                found[at, (n - m) % 2, :, (n - m) // 2] = value
                below, value = value, (x * value - _epsilon(n, m) * below) / _epsilon(n + 1, m)
        return found

    def gather(self, waves: Array) -> Array:
        """The field of waves (order, latitude, field): field, latitude, longitude."""
        every = np.zeros((waves.shape[2], self.latitudes, self.longitudes // 2 + 1), waves.dtype)
        every[:, :, list(self.orders)] = waves.transpose(2, 1, 0)
        return np.asarray(np.fft.irfft(every, self.longitudes, norm="forward"))

    def scatter(self, grid: Array) -> Array:
        """The waves of a field."""
        return np.asarray(np.fft.rfft(grid, norm="forward")[:, :, list(self.orders)].transpose(2, 1, 0))

    def inverse(self, spectrum: Array, product: Product, functions: Array) -> Array:
        """Waves of a spectrum (order, degree, field): a GEMM for each order and parity, then both hemispheres."""
        orders, degrees, fields = spectrum.shape
        sides = spectrum.reshape(orders, degrees // 2, 2, fields).swapaxes(1, 2)
        parts = np.ascontiguousarray(sides).view(spectrum.real.dtype).reshape(2 * orders, degrees // 2, 2 * fields)
        found = product(functions.reshape(2 * orders, -1, degrees // 2), parts)
        even, odd = np.moveaxis(_complex(found).reshape(orders, 2, -1, fields), 1, 0)
        return np.concatenate([even + odd, (even - odd)[:, ::-1]], axis=1)

    def direct(self, waves: Array, product: Product, functions: Array) -> Array:
        """The spectrum of waves: even and odd parts by weights, then a GEMM for each order and parity."""
        orders, latitudes, fields = waves.shape
        north, south = waves[:, : latitudes // 2], waves[:, : latitudes // 2 - 1 : -1]
        weights = self.weights.astype(waves.real.dtype)[:, None]
        sides = np.stack([(north + south) * weights, (north - south) * weights], axis=1)
        parts = np.ascontiguousarray(sides).view(waves.real.dtype).reshape(2 * orders, latitudes // 2, 2 * fields)
        found = product(functions.reshape(2 * orders, latitudes // 2, -1).swapaxes(1, 2), parts)
        spectrum = _complex(found).reshape(orders, 2, -1, fields).swapaxes(1, 2).reshape(orders, -1, fields)
        return np.asarray(spectrum)

    @cached_property
    def _factors(self) -> tuple[Array, Array, Array, Array]:
        """m, n, and epsilon of n and of n + 1; zero outside."""
        m, n = self.numbers
        inside = n <= self.truncation + 1
        return m, n, np.where(inside, _epsilon(n, m), 0), np.where(inside, _epsilon(n + 1, m), 0)

    def wind(self, vorticity: Array, divergence: Array) -> tuple[Array, Array]:
        """Spectra of U and V times the cosine of latitude."""
        m, n, down, up = (x[..., None] for x in self._factors)
        kind = vorticity.real.dtype
        inverse = np.where((n > 0) & (n <= self.truncation), -EARTH_RADIUS / np.maximum(n * (n + 1.0), 1), 0)
        stream, potential = vorticity * inverse.astype(kind), divergence * inverse.astype(kind)
        above, below = ((n + 2) * up).astype(kind), ((n - 1) * down).astype(kind)
        along = (1j * m).astype(vorticity.dtype)
        u = along * potential - (above * _next(stream) - below * _last(stream))
        v = along * stream + (above * _next(potential) - below * _last(potential))
        return u, v

    def curl(self, u: Array, v: Array) -> tuple[Array, Array]:
        """Spectra of vorticity and divergence, from those of U and V divided by the cosine of latitude."""
        m, n, down, up = (x[..., None] for x in self._factors)
        kind = u.real.dtype
        lower, upper = ((n + 1) * down / EARTH_RADIUS).astype(kind), (n * up / EARTH_RADIUS).astype(kind)
        along = (1j * m / EARTH_RADIUS).astype(u.dtype)
        chosen = (n <= self.truncation).astype(kind)
        vorticity = along * v + (lower * _last(u) - upper * _next(u))
        divergence = along * u - (lower * _last(v) - upper * _next(v))
        return vorticity * chosen, divergence * chosen

    def spectrum(self, seed: int, exponent: float, count: int) -> Array:
        """Random spectra whose energy falls as n^exponent; the wave numbers carried share that of each n."""
        m, n = self.numbers
        random = np.random.default_rng(seed)
        values = random.standard_normal((*n.shape, count, 2)).view(np.complex128)[..., 0]
        values[(m == 0)[:, 0]] = values[(m == 0)[:, 0]].real
        sharing = np.array([np.sum(m[:, 0] <= one) for one in range(n.max() + 1)])
        size = np.where((n > 0) & (n <= self.truncation), np.maximum(n, 1.0) ** (exponent / 2) / np.sqrt(sharing[n]), 0)
        return np.asarray(values * size[..., None])

    def temperature(self, seed: int) -> Array:
        """A field of MEAN_K and RANGE_K, fp64."""
        waves = self.inverse(self.spectrum(seed, -3.0, 1), np.matmul, self.functions)
        field = self.gather(waves)
        return np.asarray(MEAN_K + field * (RANGE_K / np.ptp(field)))

    def winds(self, seed: int) -> Array:
        """U and V of random vorticity and divergence, fp64."""
        spectrum = self.spectrum(seed + 1000, -1.0, 2)  # energy: that of vorticity by n^2
        pair = np.concatenate(self.wind(spectrum[..., :1], spectrum[..., 1:]), axis=2)
        fields = self.gather(self.inverse(pair, np.matmul, self.functions)) / self.cosines[:, None]
        return np.asarray(fields * (FASTEST / np.sqrt(np.sum(fields**2, axis=0)).max()))


class RoundTrips:
    """Fields in FP32 that are transformed to spectra and back, again and again.

    scalars, u, v: (field, latitude, longitude). The Legendre functions are FP32 numbers, the same for both ways.
    wide: wind goes through vorticity and divergence in FP64, and is rounded after it.
    """

    def __init__(
        self, sphere: Sphere, scalars: Array, u: Array, v: Array, product: Product, *, wide: bool = False
    ) -> None:
        self.sphere, self.product = sphere, product
        self.converted = np.complex128 if wide else np.complex64
        self.functions = sphere.functions.astype(np.float32)
        self.count = len(scalars), len(u)
        self.grid = np.concatenate([scalars, u, v]).astype(np.float32)
        cosines = sphere.cosines
        winds = np.arange(len(self.grid)) >= len(scalars)
        self.by_cosine = np.where(winds, 1 / cosines[:, None], 1).astype(np.float32)

    def step(self) -> None:
        """One pair of transforms."""
        sphere, (scalars, winds) = self.sphere, self.count
        spectrum = sphere.direct(sphere.scatter(self.grid) * self.by_cosine, self.product, self.functions)
        spectrum[:, :, :scalars] *= (sphere.numbers[1] <= sphere.truncation)[..., None]
        wind = spectrum[:, :, scalars:].astype(self.converted)
        spectrum[:, :, scalars:] = np.concatenate(
            sphere.wind(*sphere.curl(wind[:, :, :winds], wind[:, :, winds:])), axis=2
        )
        self.grid = sphere.gather(sphere.inverse(spectrum, self.product, self.functions) * self.by_cosine)


def projected(sphere: Sphere, fields: Array) -> Array:
    """What a scalar transform keeps of fields, in fp64."""
    spectrum = sphere.direct(sphere.scatter(fields), np.matmul, sphere.functions)
    spectrum *= (sphere.numbers[1] <= sphere.truncation)[..., None]
    return sphere.gather(sphere.inverse(spectrum, np.matmul, sphere.functions))


def _epsilon(n: Any, m: Any) -> Any:
    """The coefficient of the recurrence of Legendre functions."""
    n, m = np.asarray(n, np.longdouble), np.asarray(m, np.longdouble)
    return np.sqrt((n * n - m * m) / (4 * n * n - 1))


def _complex(parts: Array) -> Array:
    """Of real and imaginary parts side by side."""
    return np.ascontiguousarray(parts).view(np.result_type(parts.dtype, np.complex64))


def _next(spectrum: Array) -> Array:
    """The entries of n + 1."""
    return np.concatenate([spectrum[:, 1:], np.zeros_like(spectrum[:, :1])], axis=1)


def _last(spectrum: Array) -> Array:
    """The entries of n - 1."""
    return np.concatenate([np.zeros_like(spectrum[:, :1]), spectrum[:, :-1]], axis=1)
