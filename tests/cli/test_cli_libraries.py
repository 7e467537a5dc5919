"""`hwsim libraries`: list, show, check."""


def test_list(cli):
    done = cli("libraries")
    assert done.code == 0 and "cublas-13" in done.out and "sm90" in done.out
    assert cli("libraries", "list").out == done.out
    assert "rocblas-tensile" in [x["name"] for x in cli("libraries", "--json").json["libraries"]]


def test_show(cli):
    text = cli("libraries", "show", "cublas-13").out
    for part in ("nvjet: matrix, wgmma, operands of 8, 16 bits", "320 x 128", "one wave", "K up to 640", "h200"):
        assert part in text
    sources = cli("libraries", "show", "cublas-13", "--sources").out
    assert (
        "kernels.nvjet.rows.128x112.max_waves" in sources and "lab/hwsim_lab/configs/measured/gemm_times.csv" in sources
    )
    found = cli("libraries", "show", "cublas-13", "--json").json
    assert found["library"]["kernels"]["nvjet"]["rows"]["320x128"]["tile"] == [320, 128]


def test_devices_say_where_their_kernels_come_from(cli):
    assert "cublas-13, NVIDIA cuBLAS 13 on Hopper; as seen on h200" in cli("devices", "show", "h200").out
    assert "cutlass-sm80" in cli("devices", "show", "a100").out
    assert "library" not in cli("devices", "show", "ascend910a").out.split("matrix instructions")[0]


def test_check(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = cli("libraries", "check", "cublas-13")
    assert done.code == 0 and "library cublas-13 is right" in done.out and "microbenchmark" in done.out
    (tmp_path / "mine.yaml").write_text("schema_version: 1\nname: mine\ntitel: x\n")
    done = cli("libraries", "check", "mine.yaml")
    assert (
        done.code == 2
        and "problems in the library file" in done.err
        and "mine.yaml:3:1: titel: unknown key" in done.err
    )
    assert cli("libraries", "check", "absent.yaml").code == 2 and cli("libraries", "show", "cublas").code == 2
