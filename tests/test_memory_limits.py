"""Limits on memory: what they leave, and runs that need more, which are refused before they take any."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hwsim
from hwsim.host import memory, memory_limits
from hwsim.request import operands

MIB = 1 << 20
LINUX = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the files of Linux's /proc")


def system(folder: Path, monkeypatch: pytest.MonkeyPatch, groups: str, mounts: list[str]) -> None:
    """A /proc/self whose process has these control groups and mounts, and no limit of its own."""
    folder.mkdir(exist_ok=True)
    (folder / "cgroup").write_text(groups)
    (folder / "mountinfo").write_text("22 1 0:21 / /proc rw - proc proc rw\n" + "".join(f"{line}\n" for line in mounts))
    monkeypatch.setattr(memory_limits, "PROC_SELF", folder)
    monkeypatch.setattr(memory_limits, "_left_of_process", lambda: iter(()))


def group(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def test_the_second_version_of_control_groups(tmp_path, monkeypatch):
    mounted = tmp_path / "cgroup"
    system(tmp_path / "self", monkeypatch, "0::/user/job\n", [f"31 23 0:28 / {mounted} rw - cgroup2 cgroup2 rw"])
    assert memory_limits.bytes_left() is None
    group(mounted / "user/job", memory__max="max", memory__current=5 * MIB)
    assert memory_limits.bytes_left() is None
    group(mounted / "user", memory__max=100 * MIB, memory__current=90 * MIB)  # a parent's limit holds as well
    assert memory_limits.bytes_left() == 10 * MIB
    group(mounted / "user", memory__stat=f"anon 1\ninactive_file {30 * MIB}\nactive_file 7")  # cached files make room
    assert memory_limits.bytes_left() == 40 * MIB
    group(mounted / "user/job", memory__max=20 * MIB)
    assert memory_limits.bytes_left() == 15 * MIB
    group(mounted / "user/job", memory__current=50 * MIB)  # beyond a limit that was lowered
    assert memory_limits.bytes_left() == 0


def test_the_first_version_of_control_groups(tmp_path, monkeypatch):
    mounted = tmp_path / "memory"
    mounts = [f"31 2 0:28 / {tmp_path} rw - cgroup cg rw,cpu", f"32 2 0:29 / {mounted} rw - cgroup cgroup rw,memory"]
    system(tmp_path / "self", monkeypatch, "5:cpu,cpuacct:/\n4:memory:/job\n0::/\n", mounts)
    unlimited = 9223372036854771712
    group(mounted, memory__limit_in_bytes=unlimited, memory__usage_in_bytes=900 * MIB)
    group(mounted / "job", memory__limit_in_bytes=unlimited, memory__usage_in_bytes=7 * MIB)
    assert memory_limits.bytes_left() is None
    stat = f"inactive_file {50 * MIB}\ntotal_inactive_file {2 * MIB}"  # the former without groups below
    group(mounted / "job", memory__limit_in_bytes=64 * MIB, memory__stat=stat)
    assert memory_limits.bytes_left() == 59 * MIB
    (tmp_path / "self" / "cgroup").write_text("4:hugetlb,memory:/job\n")
    assert memory_limits.bytes_left() == 59 * MIB
    (tmp_path / "self" / "cgroup").write_text("4:cpu:/job\n")
    assert memory_limits.bytes_left() is None


def test_both_versions_beside_each_other(tmp_path, monkeypatch):
    """As systemd mounts them: the second version without controllers, or with this one."""
    first, second = tmp_path / "memory", tmp_path / "unified"
    mounts = [f"31 2 0:28 / {second} rw - cgroup2 cgroup2 rw", f"32 2 0:29 / {first} rw - cgroup cgroup rw,memory"]
    system(tmp_path / "self", monkeypatch, "4:memory:/a\n0::/b\n", mounts)
    group(first / "a", memory__limit_in_bytes=64 * MIB, memory__usage_in_bytes=MIB)
    assert memory_limits.bytes_left() == 63 * MIB
    group(second / "b", memory__max=32 * MIB, memory__current=MIB)
    assert memory_limits.bytes_left() == 31 * MIB


def test_limits_of_the_process(tmp_path, monkeypatch):
    """What counts towards each of them, in pages."""
    (tmp_path / "statm").write_text("5000 900 300 10 0 2000 0\n")
    limits = {resource.RLIMIT_AS: resource.RLIM_INFINITY, resource.RLIMIT_DATA: resource.RLIM_INFINITY}
    monkeypatch.setattr(memory_limits, "PROC_SELF", tmp_path)
    monkeypatch.setattr(memory_limits.resource, "getrlimit", lambda limit: (limits[limit], resource.RLIM_INFINITY))
    monkeypatch.setattr(memory_limits.os, "sysconf", lambda name: {"SC_PAGE_SIZE": 1 << 14}[name])
    monkeypatch.setattr(memory_limits, "_left_of_groups", lambda: iter(()))
    assert memory_limits.bytes_left() is None
    limits[resource.RLIMIT_AS] = 5003 << 14
    assert memory_limits.bytes_left() == 3 << 14
    limits[resource.RLIMIT_DATA] = 2002 << 14
    assert memory_limits.bytes_left() == 2 << 14
    limits[resource.RLIMIT_AS] = 4000 << 14  # lowered below what the process has
    assert memory_limits.bytes_left() == 0
    (tmp_path / "statm").unlink()
    assert memory_limits.bytes_left() is None


def test_what_the_machine_has(tmp_path, monkeypatch):
    """Available, which counts caches, and not free."""
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "meminfo")
    assert memory.machine_bytes() is None
    memory.MEMINFO.write_text("MemTotal:  900 kB\nMemFree:  7 kB\nMemAvailable:   300 kB\nSwapFree:  800 kB\n")
    assert memory.machine_bytes() == 300 << 10
    memory.MEMINFO.write_text("MemTotal:  900 kB\n")
    assert memory.machine_bytes() is None


@pytest.mark.parametrize(
    ("given", "each"),
    [({}, 4), ({"output": "fp16"}, 2), ({"output": "fp64", "format": "fp64"}, 8), ({"rows": [1]}, 0)],
)
def test_a_result_counts_in_its_own_format(given, each, monkeypatch):
    needs = []
    monkeypatch.setattr(operands, "check_memory", lambda needed, *_: needs.append(needed))
    a = np.ones((3, 50, 4), np.float32)
    hwsim.matmul(a, a.swapaxes(1, 2), device="h200", **({"format": "fp16"} | given))
    hwsim.run(m=20, n=30, k=4, device="h200", **({"format": "fp16"} | given))
    assert needs == [each * 3 * 50 * 50, 4 * (20 + 30) * 4 + each * 20 * 30]


def test_what_fits_exactly_and_what_is_small_is_taken(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 200 * MIB)
    memory.check_memory(200 * MIB, "A", "leave it")
    with pytest.raises(memory.InputError, match=r"^A need 0\.21 GB of memory; 0\.21 are left .*: leave it$"):
        memory.check_memory(200 * MIB + 1, "A", "leave it")
    monkeypatch.setattr(memory, "available_bytes", lambda: 0)
    memory.check_memory(memory.ALWAYS_THERE, "A", "leave it")


def test_a_container_that_sees_its_own_group_as_the_root_of_the_mount(tmp_path, monkeypatch):
    mounted = tmp_path / "memory"
    group(mounted, memory__limit_in_bytes=64 * MIB, memory__usage_in_bytes=MIB)
    line = f"32 23 0:29 /docker/4f {mounted} ro master:11 - cgroup cgroup rw,memory"
    for path in ("/docker/4f", "/"):
        system(tmp_path / "self", monkeypatch, f"4:memory:{path}\n", [line])
        assert memory_limits.bytes_left() == 63 * MIB


@pytest.mark.parametrize("text", ["", "\n", "4:memory", "::::", "\0", "0::relative"])
def test_files_that_say_nothing(tmp_path, monkeypatch, text):
    mounts = ["", "31", f"31 23 0:28 / {tmp_path} rw - cgroup2 cgroup2 rw", "a b - c"]
    system(tmp_path / "self", monkeypatch, text, mounts)
    assert memory_limits.bytes_left() is None


def test_the_least_of_machine_and_limits_counts(monkeypatch):
    for machine, limit, left in ((5, 7, 5), (7, 5, 5), (None, 5, 5), (5, None, 5), (None, None, None)):
        monkeypatch.setattr(memory, "machine_bytes", lambda machine=machine: machine)
        monkeypatch.setattr(memory, "bytes_left", lambda limit=limit: limit)
        assert memory.available_bytes() == left


LIMITED = """
import json, resource, sys
import numpy as np
import hwsim
from hwsim.host import memory

def size(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(field)) << 10

limit, asked = getattr(resource, sys.argv[1]), json.loads(sys.argv[2])
hwsim.run(m=32, n=32, k=32, threads=1, **asked)  # what a first run loads
counted = {"RLIMIT_AS": "VmSize", "RLIMIT_DATA": "VmData"}[sys.argv[1]]
resource.setrlimit(limit, (size(counted) + (400 << 20), resource.RLIM_INFINITY))
left, before = memory.available_bytes(), size("VmPeak")
refused = ""
try:
    hwsim.run(m=8192, n=8192, k=4096, threads=1, **asked)
except hwsim.InputError as error:
    refused = str(error)
grown = size("VmPeak") - before
result = hwsim.run(m=1024, n=1024, k=16, threads=1, **asked)  # what fits
print(json.dumps({"left": left, "refused": refused, "grown": grown, "shape": result.c.shape}))
"""


@LINUX
@pytest.mark.parametrize("limit", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_a_run_beyond_a_limit_of_the_process_is_refused_before_it_takes_memory(limit):
    asked = {"device": "h200", "scheme": "native", "format": "fp16"}
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, limit, json.dumps(asked)], capture_output=True, text=True, check=True
    )
    said = json.loads(done.stdout)
    assert 300 * MIB < said["left"] <= 400 * MIB
    assert "A, B and C of m, n, k = 8192, 8192, 4096 need 0.54 GB of memory" in said["refused"]
    assert said["grown"] < 16 * MIB and said["shape"] == [1024, 1024]


GIVEN = """
import json, resource, sys
import numpy as np
import hwsim

def size(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(field)) << 10

asked, of_errors = json.loads(sys.argv[1]), json.loads(sys.argv[2])
dtype = np.float64 if asked["scheme"].startswith("ozaki") else np.float32
hwsim.run(m=32, n=32, k=32, threads=1, **asked).error
shapes = ((2048, 16), (16, 2048)) if of_errors else ((16, 1 << 21), (1 << 21, 16))
a, b = (np.ones(shape, dtype) for shape in shapes)
ran = hwsim.run(a, b, threads=1, **asked) if of_errors else None
before = size("VmPeak")
resource.setrlimit(resource.RLIMIT_AS, (size("VmSize") + (256 << 20), resource.RLIM_INFINITY))
try:
    ran.error if of_errors else hwsim.run(a, b, threads=1, **asked)
except hwsim.InputError as error:
    print(json.dumps({"refused": str(error), "grown": size("VmPeak") - before}))
"""


@LINUX
@pytest.mark.parametrize(
    ("asked", "of_errors", "said"),
    [
        ({"scheme": "bf16x9"}, False, "scheme bf16x9: pieces of A and B, sums and C of m, n, k = 16, 16, 2097152 need"),
        ({"scheme": "ozaki-int8"}, False, "scheme ozaki-int8: pieces of A and B, sums and C of"),
        (
            {"device": "ascend910a", "scheme": "sgemm-cube", "functional": True},
            False,
            "functional=True: the arrays and buffers of the program for m, n, k = 16, 16, 2097152 need",
        ),
        ({"scheme": "native", "format": "fp16"}, True, "the errors of a product of m, n, k = 2048, 2048, 16 need"),
    ],
)
def test_what_a_limit_does_not_hold_is_refused_before_it_is_made(asked, of_errors, said):
    asked = {"device": "h200", "timing": False, **asked}
    words = [sys.executable, "-c", GIVEN, json.dumps(asked), json.dumps(of_errors)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert said in found["refused"]
    assert found["grown"] < 16 * MIB


PEAK = """
import json, sys
sys.path.insert(0, sys.argv[1])
import memory_need

kinds = [memory_need.Kind(*asked) for asked in json.loads(sys.argv[2])]
print(json.dumps([[str(kind), *row] for kind in kinds for row in memory_need.measured(kind, 2)]))
"""
TOOLS = Path(__file__).parents[1] / "lab" / "tools" / "measure"
LARGE_C, LARGE_K, HALF_K = (2048, 2048, 16), (32, 32, 1 << 17), (32, 32, 1 << 16)
KINDS = [
    ("h200", "native", {"format": "fp16"}, (LARGE_C, LARGE_K)),
    ("h200", "native", {"format": "fp64"}, (LARGE_C, LARGE_K)),
    ("h200", "bf16x9", {}, (LARGE_C, LARGE_K)),
    ("h200", "ozaki-int8", {}, (LARGE_C, HALF_K)),
    ("ascend910a", "sgemm-cube", {"functional": True}, ((64, 64, 65536),)),
    ("h200", "native", {"format": "tf32", "library": "cublas"}, ((1024, 1024, 8192),)),  # sums of two regions
    ("h200", "native", {"format": "fp32", "library": "cublas"}, ((16384, 1, 1024),)),  # one sum
    ("h200", "native", {"format": "fp16"}, (LARGE_C,), True),
    ("h200", "native", {"format": "fp64"}, (HALF_K,), True),
]


@LINUX
def test_the_stated_need_is_not_below_what_a_run_takes():
    """Products, programs, sums that are written out, errors: of each what a process takes beside what was stated."""
    words = [sys.executable, "-c", PEAK, str(TOOLS), json.dumps(KINDS)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert len(found) == 13
    for kind, sizes, taken, stated in found:
        assert taken < stated + 16 * MIB, (kind, sizes)  # besides: what Python and NumPy keep
        if any(word in kind for word in ("functional", "library", "with_errors=True")):
            continue  # bounds: a program's buffers count as full, regions of an order as if each were all of C
        assert stated < 1.5 * taken + 32 * MIB, (kind, sizes)  # nor is it far above: what fits is taken


STACKS = """
import json, sys
import numpy as np
import hwsim
from hwsim.compute import bits

def size(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(field)) << 10

found = []
for scheme, options, of_a, of_b in json.loads(sys.argv[1]):
    given = {"device": "h200", "scheme": scheme, "threads": 2} | options
    a, b = np.ones(of_a, np.float32), np.ones(of_b, np.float32)
    c = np.ones((*of_a[:-1], of_b[-1]), np.float32) if "beta" in options else None
    hwsim.matmul(a[..., :32, :32], b[..., :32, :32], None if c is None else c[..., :32, :32], **given)
    stated = []
    bits.check_memory = lambda needed, *_: stated.append(needed)
    before = size("VmRSS")
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")
    hwsim.matmul(a, b, c, **given)
    found.append([scheme, of_a, size("VmHWM") - before, *stated])
print(json.dumps(found))
"""
STACKED = [  # of one B: one product of all rows; of two matrices at a time; each alone; many small ones at a time
    ("bf16x9", {}, (16, 512, 1024), (1024, 16)),
    ("native", {"format": "fp16"}, (3, 1536, 16), (3, 16, 1536)),
    ("tf32x3", {}, (2, 2560, 16), (2, 16, 2560)),
    ("bf16x9", {}, (2, 24, 1 << 17), (2, 1 << 17, 24)),
    ("bf16x9", {}, (16, 4, 8, 1 << 15), (4, 1 << 15, 8)),  # B is copied for each of 64
    ("tf32x3", {}, (64, 256, 256), (64, 256, 256)),
    ("native", {"format": "fp16", "beta": 2.0}, (64, 512, 64), (64, 64, 512)),
]


@LINUX
def test_the_stated_need_of_a_stack_is_not_below_what_it_takes():
    done = subprocess.run(
        [sys.executable, "-c", STACKS, json.dumps(STACKED)], capture_output=True, text=True, check=True
    )
    for scheme, shape, taken, stated in json.loads(done.stdout):
        assert taken < stated + 16 * MIB, (scheme, shape)
        assert stated < 4 * taken + 64 * MIB, (scheme, shape)  # nor is it far above


TAKEN = """
import json, sys
import numpy as np
import hwsim
from hwsim.compute import bits

def size(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(field)) << 10

found = []
for device, options, dtype, of_a, of_b, is_heads in json.loads(sys.argv[1]):
    given = {"device": device, "threads": 2} | options
    a, b = np.zeros(of_a, dtype), np.zeros(of_b, dtype)
    a[...], b[...] = 1, 1
    if is_heads:
        a, b = (x.swapaxes(-3, -2) if x.ndim > 2 else x for x in (a, b))
    hwsim.matmul(a[..., :32, :32], b[..., :32, :32], **given)
    stated = []
    bits.check_memory = lambda needed, *_: stated.append(needed)
    before = size("VmRSS")
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")
    hwsim.matmul(a, b, **given)
    found.append([device, options, size("VmHWM") - before, *stated])
print(json.dumps(found))
"""
LONG = (2048, 8192), (8192, 16)
AS_GIVEN = [  # rounded as they lie; 32-bit words, which the instruction rounds; widened first; heads side by side
    ("h200", {"format": "fp16"}, "float64", *LONG, False),
    ("h200", {"format": "fp16"}, "float32", *LONG, False),
    ("ascend910b1", {"format": "hf32", "input_format": "hf32"}, "uint32", *LONG, False),
    ("h200", {"format": "tf32", "input_format": "tf32"}, "uint32", *LONG, False),
    ("h200", {"scheme": "tf32x3"}, "float16", *LONG, False),
    ("h200", {"format": "fp16"}, "float16", (8, 1024, 32, 64), (64, 16), True),
    ("h200", {"format": "fp16"}, "float16", (8, 1024, 32, 64), (8, 64, 32, 16), True),
]


@LINUX
def test_the_stated_need_is_that_of_operands_as_they_are_given():
    done = subprocess.run(
        [sys.executable, "-c", TAKEN, json.dumps(AS_GIVEN)], capture_output=True, text=True, check=True
    )
    for device, options, taken, stated in json.loads(done.stdout):
        assert stated / 1.8 - 16 * MIB < taken < stated + 10 * MIB, (device, options)


@LINUX
def test_the_command_line_says_it_in_a_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "hwsim", "run", "--m", "40000", "--n", "40000", "--k", "16", "--json"],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)),
    )
    assert done.returncode == 2 and not done.stdout
    assert "need 6.41 GB of memory" in done.stderr and done.stderr.count("\n") <= 2


SMALL = """
import resource
import numpy as np
import hwsim

a = np.ones((32, 32), np.float32)
given = {"device": "h200", "format": "fp16", "threads": 1}
hwsim.matmul(a, a, **given)
with open("/proc/self/statm") as pages:
    size = int(pages.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (16 << 20), resource.RLIM_INFINITY))
with hwsim.emulate(measure=False, **given):  # which takes OpenBLAS's own room
    print(np.matmul(a, a).sum())
"""


@LINUX
def test_a_small_product_needs_no_room_for_what_only_makes_it_quicker():
    """Repeated products take 32 MiB for an instant, for glibc's sake."""
    done = subprocess.run([sys.executable, "-c", SMALL], capture_output=True, text=True)
    assert done.stdout == "32768.0\n", done.stderr
