"""Patterns of `modules=`: those that hold for nothing are named, and compiled models have the eager model's names."""

import warnings

import pytest

torch = pytest.importorskip("torch", reason="needs hwsim[torch]")

import hwsim  # noqa: E402
import hwsim.torch  # noqa: E402


class Rooted(torch.nn.Module):
    """A product of the root's own, and one of a layer."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64, bias=False)

    def forward(self, x):
        return self.layer(x) @ x.T


@pytest.fixture
def call():
    torch.manual_seed(0)
    return Rooted().bfloat16(), torch.randn(16, 64).bfloat16()


CALL = {"device": "h100", "format": "e4m3", "scale": "power-of-two"}


def computed(model, x, modules):
    with torch.no_grad(), hwsim.torch.emulate(**CALL, modules=modules) as run:
        return model(x), run


@pytest.mark.parametrize("pattern", ["", "layer"])
@pytest.mark.parametrize("part", ["whole", "layer"])
def test_a_compiled_model_has_the_names_of_the_eager_one(call, pattern, part):
    torch._dynamo.reset()
    model, x = call
    wanted, eager = computed(model, x, {pattern: "plain"})
    assert not torch.equal(wanted, computed(model, x, {})[0])
    if part == "whole":
        model = torch.compile(model, backend="aot_eager")
    else:
        model.layer = torch.compile(model.layer, backend="aot_eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got, run = computed(model, x, {pattern: "plain"})
    assert torch.equal(got, wanted)
    assert set(run.record.layers) == set(eager.record.layers) and run.record.macs_plain == eager.record.macs_plain


def test_swapped_modules_of_a_compiled_model_have_these_names(call):
    model, x = call
    run = hwsim.torch.swap(torch.compile(model, backend="aot_eager"), device="h100")
    model(x)
    assert {layer for layer, _, _ in run.record.layers} == {"layer"}
    hwsim.torch.unswap(model)


def test_a_pattern_without_a_module_is_named_at_the_end(call):
    model, x = call
    said = r"modules\['layers'\] does nothing: it matches no module; modules here: 'layer'; did you mean 'layer'\?"
    with pytest.warns(UserWarning, match=said):
        computed(model, x, {"layers": "plain"})
    with pytest.warns(UserWarning, match=r"modules\['layer'\] does nothing: earlier patterns take its modules: '\*'"):
        computed(model, x, {"*": "plain", "layer": "plain"})


def test_a_pattern_is_looked_at_in_a_function_that_was_compiled_before(call):
    """Its graph runs again without a module that is called by name."""
    torch._dynamo.reset()
    model, x = call
    compiled = torch.compile(lambda rows: model(rows) + 1, backend="aot_eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            computed(compiled, x, {"layer": "plain"})


def test_what_was_compiled_before_does_not_quiet_a_pattern(call):
    """Names and functions of a graph count in the runs in which it runs."""
    torch._dynamo.reset()
    model, x = call
    other = torch.nn.Sequential()
    other.add_module("head", torch.nn.Linear(64, 64, bias=False).bfloat16())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        computed(torch.compile(lambda rows: other(rows) + 1, backend="aot_eager"), x, {"head": "plain"})
    with pytest.warns(UserWarning, match=r"modules\['head'\] does nothing: it matches no module"):
        computed(model, x, {"head": "plain"})
    summed, rows = nested(Summed)
    computed(torch.compile(lambda rows: summed(rows) + 1, backend="aot_eager"), rows, {})
    with pytest.warns(UserWarning, match=NESTED):
        computed(*nested(), {"0": "plain"})


def test_nothing_is_said_where_nothing_ran_or_an_error_came(call):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with hwsim.torch.emulate(**CALL, modules={"head": "plain"}):
            pass
        with pytest.raises(RuntimeError), hwsim.torch.emulate(**CALL, modules={"head": "plain"}):
            call[0](torch.ones(2, 3).bfloat16())


def test_where_the_model_is_known_it_is_an_error(call):
    model, x = call
    given = {**CALL, "modules": {"layers": "plain"}}
    for study in (
        lambda: hwsim.torch.diff(model, x, {}, {"format": "e5m2"}, **given),
        lambda: hwsim.torch.compare(model, x, "h100", given),
        lambda: hwsim.torch.invariance(model, x, [1], **given),
        lambda: hwsim.torch.swap(model, **given),
    ):
        with pytest.raises(hwsim.InputError, match=r"modules\['layers'\] does nothing.*did you mean 'layer'\?"):
            study()
    assert "forward" not in model.layer.__dict__


NESTED = r"modules\['0'\] does nothing: it matches a module without products of its own; '0\.\*' takes what is below it"


class Summed(torch.nn.Sequential):
    """A container with a function of its own."""

    def forward(self, x):
        return super().forward(x).softmax(-1)


def nested(container=torch.nn.Sequential):
    torch.manual_seed(0)
    inner = container(torch.nn.Linear(64, 64), torch.nn.LayerNorm(64))
    return torch.nn.Sequential(inner, torch.nn.Linear(64, 64)).bfloat16().eval(), torch.randn(16, 64).bfloat16()


@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_pattern_of_a_container_alone_is_named(is_compiled):
    torch._dynamo.reset()
    model, x = nested()
    if is_compiled:
        model = torch.compile(model, backend="aot_eager")
    with pytest.warns(UserWarning, match=NESTED):
        computed(model, x, {"0": "plain"})
    if is_compiled:
        return  # functions of a graph have no layer: they may be the root's
    with pytest.warns(UserWarning, match=r"modules\[''\] does nothing.*; '\*' takes what is below it"):
        computed(model, x, {"": "plain"})


@pytest.mark.parametrize("modules", [{"0.*": "plain"}, {"0*": "plain"}, {"0": "plain", "0.*": "plain"}, {"0": CALL}])
def test_a_pattern_with_what_is_below_it_is_not(modules):
    model, x = nested()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        computed(model, x, modules)


def test_a_container_with_a_function_of_its_own_is_not():
    model, x = nested(Summed)
    library = {"device": "h100", "library": "pytorch"}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        with hwsim.torch.emulate(**library, modules={"0": "plain"}) as run:
            model(x)
    assert run.record.here == {"softmax": 1} and run.record.own_kernels == {"layer_norm": 1}


def test_where_the_model_is_known_a_container_alone_is_an_error():
    model, x = nested()
    given = {**CALL, "modules": {"0": "plain"}}
    for study in (
        lambda: hwsim.torch.diff(model, x, {}, {"format": "e5m2"}, **given),
        lambda: hwsim.torch.compare(model, x, "h100", given),
        lambda: hwsim.torch.invariance(model, x, [2], **given),
        lambda: hwsim.torch.swap(model, **given),
    ):
        with pytest.raises(hwsim.InputError, match=NESTED):
            study()
    assert "forward" not in model[1].__dict__


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"modules": {"pw": {"devize": "a100"}}}, r"^modules\['pw'\]: no argument 'devize'.*did you mean 'device'\?"),
        ({"forward": {"formt": "bf16"}}, r"^forward: no argument 'formt'.*did you mean 'format'\?"),
        ({"devize": "a100"}, r"^no argument 'devize'.*did you mean 'device'\?"),
    ],
)
def test_an_argument_that_is_none_is_named_with_its_place(given, said):
    with pytest.raises(hwsim.InputError, match=said) as raised, hwsim.torch.emulate(**given):
        pass
    assert "help-all" not in str(raised.value)
