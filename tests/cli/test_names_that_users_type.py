"""What the command line says to names without their option, to names of tables and to names of formats."""

import pytest

from hwsim.libraries.providers import known_libraries


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("run", "h200"), "say --device h200"),
        (("attention", "h100"), "say --device h100"),
        (("run", "bf16x9"), "say --scheme bf16x9"),
        (("run", "cublas"), "say --library cublas"),
        (("run", "nothing"), "hwsim run --help shows the options that take a value"),
    ],
)
def test_a_name_without_its_option(refused, words, wanted):
    assert refused(*words).rstrip().endswith(f"unrecognized arguments: {words[1]}; {wanted}")


def test_the_list_of_tables_names_the_libraries_that_run_takes(cli):
    assert f"hwsim run --library NAME takes: {', '.join(known_libraries())}\n" in cli("libraries").out
    assert cli("libraries", "--json").json["to_run"] == known_libraries()


def test_a_table_of_kernels_is_no_library(refused):
    said = refused("run", "--device", "h200", "--library", "cublas-13")
    assert "cublas-13 is a table of kernels (hwsim libraries show cublas-13)" in said
    assert said.rstrip().endswith("did you mean 'cublas'?")


def test_a_format_in_the_place_of_an_instruction_lists_its_instructions(refused):
    said = refused("explain", "h100", "e4m3", "--a", "1", "--b", "1")
    assert "of e4m3 it has: mma.m16n8k32.f32.A.B.f32" in said and "all 46: hwsim devices show h100" in said
    assert "f64" not in said and said.count(";") < 20
    near = refused("explain", "h100", "wgmma.m64n8k16.f32.f16.f61", "--a", "1", "--b", "1")
    assert "did you mean 'wgmma.m64n8k16.f32.f16.f16' (N a multiple of 8 up to 256)?; all 46" in near


def test_tune_says_the_state_of_l2_and_why_configurations_are_not_legal(cli):
    words = (
        "tune",
        "--device",
        "b200",
        "--scheme",
        "mxfp8",
        "--m",
        "256",
        "--n",
        "256",
        "--k",
        "256",
        "--budget",
        "30",
    )
    found = {l2: cli(*words, "--l2", l2) for l2 in ("series", "cold")}
    assert "state     L2 empty (l2=cold)" in found["cold"].out
    assert "(l2=series)" in cli(*words).out
    cycles = {l2: cli(*words, "--l2", l2, "--json").json["default"]["cycles"] for l2 in found}
    assert cycles["cold"] > cycles["series"]


def test_tune_of_a_scheme_that_quantises_takes_the_instruction_of_a_run(cli):
    sizes = ("--device", "b200", "--scheme", "mxfp8", "--m", "256", "--n", "256", "--k", "256")
    run = cli("run", *sizes, "--no-exact", "--json").json
    tuned = cli("tune", *sizes, "--budget", "3", "--json").json
    assert ".mxf8f6f4." in tuned["default"]["unit"]
    assert (tuned["default"]["cycles"], tuned["default"]["unit"]) == (run["cycles"], run["options"]["unit"])


def test_attention_says_that_pytorch_chose_the_kernel_unless_one_is_named(cli):
    words = ("attention", "--device", "h200", "--heads", "1", "--queries", "128", "--no-exact")
    said = " ".join(cli(*words).out.split())
    assert "PyTorch's own choice; others by --backend (flash, efficient, cudnn, math) or --library (" in said
    assert "own choice" not in " ".join(cli(*words, "--backend", "flash").out.split())


def test_a_device_without_scales_says_how_to_find_one_that_has(cli, refused):
    said = refused("run", "--device", "h200", "--scheme", "mxfp8", "--no-exact")
    named = " ".join(said.split()).rpartition("with scales of ue8m0: ")[2].removesuffix(".").split(", ")
    rows = cli("which", "--bits", "e4m3", "--scales", "ue8m0", "--json").json["instructions"]
    assert {row["scales"] for row in rows} == {"ue8m0"} and {row["a"] for row in rows} == {"e4m3"}
    assert set(named) == {row["device"] for row in rows} and "b200" in named and "h200" not in named
