"""`library=` takes what `hwsim.library` gives, wherever it takes a name: the same results, and one error elsewhere."""

import numpy as np
import pytest

import hwsim
from hwsim.errors import InputError
from hwsim.libraries.gemm_call import GemmCall, OperationCall
from hwsim.studies.diff import Variant
from hwsim.studies.invariance import batch_classes

RNG = np.random.default_rng(5)
A, B = RNG.standard_normal((24, 3072)).astype(np.float16), RNG.standard_normal((3072, 40)).astype(np.float16)
CALL = {"device": "h200", "format": "fp16"}


@pytest.fixture(scope="module")
def cublas():
    return hwsim.library("cublas", device="h200")


def test_a_run_by_an_object_is_the_run_by_its_name(cublas) -> None:
    by_name, by_object = (hwsim.run(A, B, library=x, **CALL) for x in ("cublas", cublas))
    assert by_name.c.tobytes() == by_object.c.tobytes()
    assert (by_name.cycles, by_name.seconds) == (by_object.cycles, by_object.seconds)
    assert by_name.gemm == by_object.gemm and by_name.warnings == by_object.warnings
    assert by_object.to_dict()["gemm"] == by_name.to_dict()["gemm"]
    again = hwsim.run(A, B, gemm=by_object.gemm)
    assert again.c.tobytes() == by_name.c.tobytes() and again.seconds == by_name.seconds


def test_a_scheme_takes_an_object(cublas) -> None:
    by_name, by_object = (
        hwsim.run(m=64, n=64, k=256, device="h200", scheme="bf16x9", library=x) for x in ("cublas", cublas)
    )
    assert by_name.gemm == by_object.gemm and by_name.seconds == by_object.seconds


@pytest.mark.parametrize("name", ["matmul", "emulate", "emulated", "diff", "tune", "invariance", "classes"])
def test_every_front_takes_an_object(cublas, name) -> None:
    def found(library):
        if name == "matmul":
            return hwsim.matmul(A, B, library=library, **CALL).tobytes()
        if name in ("emulate", "emulated"):
            with (
                hwsim.emulate(library=library, **CALL) if name == "emulate" else hwsim.emulate(**CALL, library=library)
            ):
                return (A.astype(np.float32) @ B.astype(np.float32)).tobytes()
        if name == "diff":
            plain = Variant("h200", format="fp16")
            other = Variant("h200", format="fp16", library=library)
            found = hwsim.diff(A, B, plain, other)
            product = hwsim.matmul(A, B, library=library, **CALL)
            assert found.differing == np.count_nonzero(product != hwsim.matmul(A, B, **CALL)) > 0
            return found.to_dict()
        if name == "tune":
            return hwsim.tune("h200", 64, 64, 256, format="fp16", budget=3, library=library).library.kernel
        weight = {"device": "h200", "library": library, "format": "bf16", "n": 512, "k": 2048}
        if name == "classes":
            return [(one.label, one.sizes_m) for one in batch_classes(m=range(1, 40), **weight)]
        return hwsim.invariance(m=range(1, 40), **weight)

    assert found("cublas") == found(cublas)


def test_torch_takes_an_object(cublas) -> None:
    torch = pytest.importorskip("torch")
    import hwsim.torch

    x, w = torch.from_numpy(A).clone(), torch.from_numpy(B).clone()
    results = []
    for library in ("cublas", cublas):
        with hwsim.torch.emulate(library=library, **CALL):
            results.append((x @ w).numpy().tobytes())
    assert results[0] == results[1]


def test_jax_takes_an_object(cublas) -> None:
    pytest.importorskip("jax")
    import hwsim.jax

    dimensions = (((1,), (0,)), ((), ()))
    results = [np.asarray(hwsim.jax.dot_general(library=x, **CALL)(A, B, dimensions)) for x in ("cublas", cublas)]
    assert results[0].tobytes() == results[1].tobytes()


def test_a_library_on_another_device_is_refused(cublas) -> None:
    for device in ("h100", "a100"):
        with pytest.raises(InputError, match=rf"library = cublas 13.1 on h200: the device is {device}"):
            hwsim.run(A, B, device=device, format="fp16", library=cublas)


@pytest.mark.parametrize("wrong", [3, b"cublas", ["cublas"], object()])
def test_what_is_no_library_is_refused(wrong) -> None:
    with pytest.raises(InputError, match=r"allowed: a name, a file of answers, or what hwsim.library gives"):
        hwsim.run(A, B, library=wrong, **CALL)


def test_a_workspace_of_ones_own_holds(cublas) -> None:
    """PyTorch's call says a workspace; a library that was made with another one keeps that."""
    little = hwsim.library("cublas", device="h200", workspace_bytes=1 << 20)
    sizes = {"m": 512, "n": 512, "k": 16384, **CALL, "exact": False}
    slices = [hwsim.run(library=x, **sizes).gemm.decided("split_k").value for x in (little, cublas)]
    assert slices == ["1", "4"]


def test_a_call_is_one_value(cublas) -> None:
    call = GemmCall(m=33, n=128, k=4096, format="fp16", b_layout="columns")
    by_fields = cublas.choose(m=33, n=128, k=4096, format="fp16", b_layout="columns")
    assert cublas.choose(call) == by_fields
    with pytest.raises(TypeError, match="one value and m"):
        cublas.choose(call, m=3)
    with pytest.raises(TypeError, match="formt"):
        cublas.choose(m=1, n=1, k=1, formt="fp16")


def test_another_operation_is_refused_by_a_library_without_it(cublas) -> None:
    class Convolution(OperationCall):
        operation = "convolution"

    with pytest.raises(hwsim.UnsupportedError, match=r"cublas 13\.1 has no operation 'convolution'; it has gemm"):
        cublas.choose(Convolution())
