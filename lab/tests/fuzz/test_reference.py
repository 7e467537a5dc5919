"""lab/tools/fuzz/reference.py: a short campaign here, and faults planted in each layer of the evaluator, all seen."""

import json
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "tools" / "fuzz"
COUNT = 80
FIRST = 10_000_000  # numbers that no long campaign has

#: A case that sees each fault: `python lab/tools/fuzz/planted.py` looks for them again where the drawing has changed.
SEEN = {
    "split: rounding of the last piece": 10000007,
    "split: exponents of slices": 10000010,
    "split: low bytes": 10000016,
    "chain: K backwards": 10000005,
    "chain: order of products": 10000012,
    "chain: K permuted": 10000548,
    "chain: accumulator divided": 10000000,
    "chain: divided in runs": 10000152,
    "chain: start from C": 10000329,
    "promotion: a term's own": 10000412,
    "promotion: the schedule's": 10000008,
    "slices: lengths": 10000160,
    "slices: order of merging": 10000730,
    "slices: stored and merged narrow": 10000101,
    "written sums: halving": 10000089,
    "written sums: stored narrow": 10000167,
    "regions: step": 10000054,
    "join: scale of terms": 10000010,
    "join: exact sums": 10000025,
    "specials: patched by a chain": 10000142,
    "mixed: plan of a block": 10000709,
    "epilogue: alpha": 10000020,
    "epilogue: beta": 10000048,
    "epilogue: contraction": 10000173,
    "epilogue: fused": 10000173,
    "epilogue: bias": 10000002,
    "epilogue: integers": 10000016,
    "epilogue: product format": 10000336,
    "output: rounding": 10000067,
    "output: overflow": 10000015,
}


def run(*words):
    return subprocess.run([sys.executable, *map(str, words)], cwd=FOLDER, capture_output=True, text=True, check=False)


def test_no_element_differs():
    """Random devices, schemes and options: kernels and evaluator against Python integers, all kinds of unit reached."""
    found = run("reference.py", "--first", FIRST, "--count", COUNT, "--processes", 1)
    assert found.returncode == 0, found.stdout
    first, *lines = found.stdout.splitlines()
    assert f"{COUNT} cases" in first and " equal" in first and "equal instruction" in first and "fault" not in first
    reached = {line.partition(":")[0]: line for line in lines}
    assert {"fused", "exact", "integer", "fma_chain"} <= set(reached["unit"].replace(",", "").split())
    for group in ("device", "scheme", "split", "schedule", "epilogue", "elements", "values"):
        assert group in reached, group
    for kind in ("nan", "infinity", "subnormal", "-0"):
        assert f" {kind}" in reached["elements"], kind


def test_planted_faults_are_seen():
    """Each in a process of its own kind: the evaluator as it is passes the case, and the faulty one does not."""
    code = (
        "import json, sys, planted\n"
        "seen = json.loads(sys.argv[1])\n"
        "assert set(seen) == set(planted.PLANTED), set(planted.PLANTED) ^ set(seen)\n"
        "print(*(name for name, number in seen.items() if not planted.is_seen(name, number)), sep='\\n')\n"
    )
    found = run("-c", code, json.dumps(SEEN))
    assert found.returncode == 0, found.stderr
    assert found.stdout.split("\n") == ["", ""], f"not seen:\n{found.stdout}"
