"""PyTorch's switches decide formats and reductions inside `hwsim.torch.emulate`, unless an option says otherwise."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import hwsim  # noqa: E402  PyTorch is optional
import hwsim.torch  # noqa: E402
from hwsim.devices import load, narrow_instruction  # noqa: E402
from hwsim.frameworks.torch.switches import current  # noqa: E402
from hwsim.gemm.schedule import Schedule  # noqa: E402


@pytest.fixture(autouse=True)
def _switches(monkeypatch):
    """Each test leaves PyTorch's switches as they were."""
    for name in ("CUBLASLT_WORKSPACE_SIZE", "CUBLAS_WORKSPACE_CONFIG", "ROCBLAS_INTERNAL_FP16_ALT_IMPL"):
        monkeypatch.delenv(name, raising=False)
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32, matmul.allow_bf16_reduced_precision_reduction, torch.backends.cudnn.allow_tf32
    yield
    matmul.allow_tf32, matmul.allow_bf16_reduced_precision_reduction, torch.backends.cudnn.allow_tf32 = before


def _product(x, w, **arguments):
    with hwsim.torch.emulate(**{"device": "h100", "measure_every": 0, **arguments}) as run:
        return x @ w, run.report()


@pytest.mark.parametrize("library", [None, "cublas", "pytorch"])
def test_tf32_is_what_the_switch_says(library):
    x, one = torch.full((16, 16), 2077.0).tril().triu(), torch.eye(16)  # 12 bits; TF32 keeps 11
    values = {}
    for is_on in (False, True):
        torch.backends.cuda.matmul.allow_tf32 = is_on
        product, report = _product(x, one, library=library)
        values[is_on] = product[0, 0].item()
        assert f"fp32 products {'tf32' if is_on else 'ieee'}" in report
    assert values == {False: 2077.0, True: 2076.0}
    assert _product(x, one, library=library, format="fp32")[0][0, 0].item() == 2077.0


def test_convolutions_have_a_switch_of_their_own():
    x, w = torch.full((1, 1, 4, 4), 2077.0), torch.ones(1, 1, 1, 1)
    for is_on, value in ((True, 2076.0), (False, 2077.0)):
        torch.backends.cudnn.allow_tf32 = is_on
        with hwsim.torch.emulate(device="h100", measure_every=0):
            assert torch.nn.functional.conv2d(x, w)[0, 0, 0, 0].item() == value


@pytest.fixture
def switched(monkeypatch):
    """Sets a switch of CUDA's products for one test."""
    matmul = torch.backends.cuda.matmul
    before = {}

    def switch(name, value):
        if not hasattr(matmul, "allow_bf16_reduced_precision_reduction_split_k"):
            pytest.skip("this PyTorch has no such switch")
        before.setdefault(name, getattr(matmul, name))
        setattr(matmul, name, value)

    yield switch
    for name, value in before.items():
        setattr(matmul, name, value)


@pytest.mark.parametrize("device", ["v100", "a100", "h200", "b200"])
@pytest.mark.parametrize("library", [None, "pytorch"])
def test_fp16_sums_follow_the_switch(switched, library, device):
    x = torch.cat([torch.full((1, 1), 2048.0), torch.zeros(1, 15), torch.full((1, 48), 2.0**-5)], 1).half()
    ones = torch.ones(64, 1).half()
    switched("allow_fp16_accumulation", True)
    narrow, report = _product(x, ones, device=device, library=library)
    assert narrow.item() == 2048 and "allow_fp16_accumulation" in report  # in fp32 it is 2049.5
    unit = load(device)
    chain = hwsim.matmul(
        x.numpy(), ones.numpy(), device=device, format="fp16", output="fp16",
        schedule=Schedule(instruction=narrow_instruction(unit, "fp16")),
    )  # fmt: skip
    assert chain.item() == narrow.item()
    wide, _ = _product(x.float(), ones.float(), device=device)
    assert wide.item() == 2049.5  # the switch is of fp16 alone
    if library:
        assert "matmul of fp16 with allow_fp16_accumulation, sums in fp16 in the unit's own order" in report
        assert (
            "0.0 % in the library's known order, 100.0 % in an assumed one" in report
            and "weakest evidence of the bits: assumption" in report
        )


def test_products_without_slices_follow_the_switch(switched):
    torch.manual_seed(0)
    x, w = torch.randn(64, 6886).bfloat16(), torch.randn(132, 6886).bfloat16().t()
    sliced, _ = _product(x, w, library="pytorch")
    switched("allow_bf16_reduced_precision_reduction", (False, False))
    whole, report = _product(x, w, library="pytorch")
    assert "reductions of bf16 none" in report and "weakest evidence of the bits: assumption" in report
    assert "reductions of fp16 any" in report and "100.0 % in the library's known order" in report
    said, _ = _product(x, w, library="pytorch", reductions="none")
    assert torch.equal(whole, said) and not torch.equal(whole, sliced)
    for k in (6886, 16384):
        choice = hwsim.library("pytorch", device="h100").choose(
            m=64, n=132, k=k, format="bf16", output="bf16", b_layout="columns", reductions="none"
        )
        assert (choice.split_k, choice.evidence) == (1, "assumption")


@pytest.mark.parametrize("value", ["bfx9", "16x9"])
def test_bf16x9_is_for_products_of_blackwell_alone(monkeypatch, value):
    """PyTorch's pull request 195301; the version at hand refuses the value."""
    x = torch.randn(16, 32)
    with hwsim.torch.emulate(device="b200", scheme="bf16x9", measure_every=0):
        want = x @ x.t()
    if not hasattr(torch._C, "_get_fp32_precision_getter"):
        pytest.skip("this PyTorch has no such switch")
    monkeypatch.setattr(torch._C, "_get_fp32_precision_getter", lambda backend, operation: value)
    with hwsim.torch.emulate(device="b200", measure_every=0):
        assert torch.equal(x @ x.t(), want)
    for device in ("h200", "mi300x", "v100"):
        message = rf"fp32_precision = '{value}' for a matmul on {device}: .*16x9 for products on chips of sm100"
        with pytest.raises(hwsim.UnsupportedError, match=message), hwsim.torch.emulate(device=device, measure_every=0):
            x @ x.t()
    image, weight = torch.randn(1, 2, 4, 4), torch.randn(2, 2, 3, 3)
    with pytest.raises(hwsim.UnsupportedError, match="for a convolution on b200"), hwsim.torch.emulate(device="b200"):
        torch.nn.functional.conv2d(image, weight)


def test_reductions_follow_the_switch():
    torch.manual_seed(0)
    x, w = torch.randn(500, 6886).bfloat16(), torch.randn(132, 6886).bfloat16().t()
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True
    by_switch, _ = _product(x, w, library="pytorch")
    by_option, _ = _product(x, w, library="pytorch", reductions="compute")
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    off, report = _product(x, w, library="pytorch")
    assert torch.equal(by_option, off) and not torch.equal(by_switch, off)
    assert "reductions of bf16 compute" in report


def test_the_environment_says_the_workspaces(monkeypatch):
    monkeypatch.setenv("CUBLASLT_WORKSPACE_SIZE", "1")
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    assert current().workspace_bytes == {"workspace_bytes": 16 * 8 * 1024, "lt_workspace_bytes": 1024}
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "16")
    with pytest.raises(hwsim.InputError, match="CUBLAS_WORKSPACE_CONFIG = '16'; allowed: :KIB:COUNT"):
        current()


def test_scaled_products_are_promoted_unless_fast_accumulation_is_asked_for():
    torch.manual_seed(0)
    x, w = torch.randn(32, 2048).to(torch.float8_e4m3fn), torch.randn(64, 2048).to(torch.float8_e4m3fn).t()
    one, results = torch.ones(()), {}
    for name, fast, more in (("slow", False, {}), ("fast", True, {}), ("said", True, {"accumulate": "promoted"})):
        with hwsim.torch.emulate(device="h100", measure_every=0, **more):
            results[name] = torch._scaled_mm(x, w, one, one, out_dtype=torch.bfloat16, use_fast_accum=fast)
    assert torch.equal(results["slow"], results["said"]) and not torch.equal(results["slow"], results["fast"])


def test_gradients_of_fp16_on_mi200_are_products_of_bf16(monkeypatch):
    x = torch.full((1, 32), 2.0**-16).half().requires_grad_()
    w, g = torch.full((32, 1), 512.0).half(), torch.full((1, 1), 2.0**-16).half()
    gradients = []
    for setting in (None, "0"):
        if setting is not None:
            monkeypatch.setenv("ROCBLAS_INTERNAL_FP16_ALT_IMPL", setting)
        x.grad = None
        with hwsim.torch.emulate(device="mi210", measure_every=0):
            (x @ w).backward(g)
        gradients.append(x.grad[0, 0].item())
    assert gradients == [2.0**-7, 0.0]


@pytest.mark.parametrize(
    ("library", "asked", "substituted"),
    [
        ("cublas", None, {"convolution of bf16 by cudnn, in the unit's own order": 1}),
        ("pytorch", "cudnn", {}),
    ],
)
def test_a_convolution_is_no_call_of_cublas(library, asked, substituted):
    """Under "pytorch" it is one of cuDNN, whose kernel for so small a convolution adds in a chain of fp32."""
    x, w = torch.randn(1, 16, 8, 8).bfloat16(), torch.randn(16, 16, 3, 3).bfloat16()
    seen = []
    with hwsim.torch.emulate(device="h100", library=library, measure_every=0) as run:
        run.record.observer = lambda place, a, b, out, gemm: seen.append(gemm.library and gemm.library.name)
        got = torch.nn.functional.conv2d(x, w)
    with hwsim.torch.emulate(device="h100", measure_every=0):
        own = torch.nn.functional.conv2d(x, w)
    assert seen == [asked] and (asked is not None or torch.equal(got, own))
    assert not run.not_caught and run.to_dict()["substituted"] == substituted


@pytest.mark.parametrize("library", [None, "pytorch"])
def test_grouped_products_are_one_product_a_group(library):
    torch.manual_seed(0)
    a, b = torch.randn(48, 64).bfloat16(), torch.randn(2, 64, 32).bfloat16()
    ends = torch.tensor([16, 48], dtype=torch.int32)
    with hwsim.torch.emulate(device="h100", measure_every=0, library=library) as run:
        got = torch._grouped_mm(a, b, offs=ends)
    with hwsim.torch.emulate(device="h100", measure_every=0):
        expected = torch.cat([a[:16] @ b[0], a[16:] @ b[1]])
    assert torch.equal(got, expected) and not run.not_caught
    assert run.record.total().macs == 48 * 64 * 32
