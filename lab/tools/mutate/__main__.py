"""Mutation testing: changes the sources one place at a time and asks which tests see it.

python lab/tools/mutate c [--count 200] [--log FILE]        # kernels: dot units, conversions, lanes, the timing engine
python lab/tools/mutate python [--count 200] [--log FILE]   # lowering, machines, timing, provenance
python lab/tools/mutate c --again --log FILE                # those that survived, once more (after a test was written)
python lab/tools/mutate c --again --tests TEST --log FILE   # the same by this test alone; what it misses stays open
python lab/tools/mutate python --planted                    # the changes of planted.yaml, by the tests that each names

The sample is the first places by a hash of seed, file and change, so that an edit elsewhere leaves it. The tests of a
file are in stages; every mutant of the sample goes through its first stage before one goes through a second. A mutant
that the compiler makes the same object of is left out. A survivor is killed by a new test, or is shown to be no fault
in known.yaml, with the reason. Exit code 1: some survivor is neither.
"""

import argparse
import hashlib
import heapq
import json
import multiprocessing
import queue
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import yaml
from sites import Site, c_sites, python_sites
from trees import ROOT, Tree

PLANTED = Path(__file__).with_name("planted.yaml")
KNOWN = Path(__file__).with_name("known.yaml")
SLACK_S, SLACK = 60, 6.0  # a stage of tests may take so many seconds more, and so many times its usual time
BUILD_S = 300
FIELDS = ("id", "file", "line", "old", "new")
COUNTED = ("killed", "survived", "passed")  # passed: some stages of tests, not all
UNCOUNTED = ("same object", "no build", "error")

NO_GPU = "--ignore=tests/golden/test_golden_recorder.py"  # where a GPU is, one for all processes
MANIFEST = ("tests/manifest",)
KERNELS = ("tests/kernels",), ("tests/golden", "tests/arithmetic", NO_GPU), ("tests/evaluate", "tests/schemes")
ENGINE = (
    ("tests/machines", "tests/program"),
    MANIFEST,
    ("tests/dataflows", "lab/tests/golden/test_golden_timing.py"),
)
LOWERING = MANIFEST, ("tests/dataflows",), ("tests/schemes", "tests/cli")
MACHINES = ("tests/machines", "tests/program"), MANIFEST, ("tests/dataflows",), ("tests/trace", "tests/cli")
RESOLVING = (
    MANIFEST,
    ("tests/libraries",),
    ("tests/schemes", "tests/formats"),
    ("tests/cli",),
    ("tests/studies/test_predicted_error.py", "tests/studies/test_choice.py"),
)
PROVENANCE = (("tests/devices",),)
# language: (files, stages of tests); the first whose files hold the source counts
TARGETS = {
    "c": [
        ("kernels_ext/src/engine*.c", ENGINE),
        ("kernels_ext/include/hw_engine*.h", ENGINE),
        ("kernels_ext/src/*.c", KERNELS),
        ("kernels_ext/variant/*/*.c", KERNELS),
        ("kernels_ext/include/hw_[cdfl]*.h", KERNELS),
    ],
    "python": [
        ("hwsim/dataflows/**/*.py", LOWERING),
        ("hwsim/machines/*.py", MACHINES),
        ("hwsim/resolve/**/*.py", RESOLVING),
        ("hwsim/datafiles/provenance.py", PROVENANCE),
    ],
}
LEFT_OUT = {"kernels_ext/include/hw_cpu.h"}
SITES = {"c": c_sites, "python": python_sites}


def targets(language):
    """{file: stages of tests}, in order."""
    found = {}
    for pattern, stages in TARGETS[language]:
        for path in sorted(ROOT.glob(pattern)):
            name = str(path.relative_to(ROOT))
            if name not in LEFT_OUT:
                found.setdefault(name, stages)
    return found


def mutants(language, seed):
    """Every mutant, in the order of the sample."""
    found = []
    for name in targets(language):
        text = (ROOT / name).read_text()
        seen = Counter()
        for site in SITES[language](text):
            old, new = site.lines(text)
            seen[old, new] += 1
            key = f"{seed}|{name}|{old}|{new}|{seen[old, new]}"
            found.append((hashlib.sha256(key.encode()).hexdigest(), name, site, old, new))
    found.sort(key=lambda one: one[0])
    stages = targets(language)
    return [
        {"id": key[:12], "file": name, "line": site.line, "old": old, "new": new, "site": site, "stages": stages[name]}
        for key, name, site, old, new in found
    ]


def planted(language):
    """The mutants of planted.yaml; their one stage are the tests that the row names, else all stages of the file.

    Raises SystemExit where a line is not there, or not alone, and where no test is known for it.
    """
    found, stages = [], targets(language)
    for row in yaml.safe_load(PLANTED.read_text()):
        name, old, new = row["file"], row["old"], row["new"]
        if name.endswith(".py") != (language == "python"):
            continue
        of_row = (tuple(row["tests"]),) if "tests" in row else stages.get(name)
        if of_row is None:
            raise SystemExit(f"{PLANTED}: {name} has no tests of its own; give the row `tests`")
        text = (ROOT / name).read_text()
        if text.count(old) != 1:
            raise SystemExit(f"{PLANTED}: {name} has {text.count(old)} lines {old!r}; allowed: one")
        start = text.index(old)
        site = Site(start, start + len(old), new, text.count("\n", 0, start) + 1)
        key = hashlib.sha256(f"planted|{name}|{old}|{new}".encode()).hexdigest()[:12]
        found.append(
            {"id": key, "file": name, "line": site.line, "old": old, "new": new, "site": site, "stages": of_row}
        )
    return found


def known():
    """The survivors that are no faults, as (file, old, new); as ids where only one of equal lines is meant."""
    rows = yaml.safe_load(KNOWN.read_text()) if KNOWN.exists() else []
    lines = {(row["file"], row["old"], change) for row in rows or [] if "ids" not in row for change in row["new"]}
    return lines.union(*(row["ids"] for row in rows or [] if "ids" in row))


def is_known(row, found):
    """Whether a row of the log is among the survivors `found`, which `known` gave."""
    return row["id"] in found or (row["file"], row["old"], row["new"]) in found


def read_log(log):
    """(the last row of each mutant, the usual times of the stages of tests) of a log."""
    rows, times = {}, {}
    for line in log.read_text().splitlines() if log is not None and log.exists() else ():
        if line.endswith("}"):  # else cut off when it was stopped
            row = json.loads(line)
            if "stage" in row:
                times[tuple(row["stage"])] = row["left_out"], row["seconds"]
            else:
                rows[row["id"]] = row
    return rows, times


def same_objects(tree, other):
    """Whether all objects that were built anew are as they were."""
    objects = [path for path in tree.changed() if path.suffix == ".o"]
    return all(path.read_bytes() == (other.folder / path.relative_to(tree.folder)).read_bytes() for path in objects)


def fails_unchanged(other, test, known):
    """Whether a test fails in the unchanged tree, as some do on one host alone; known: by test, what was found."""
    if test not in known:
        failed, _ = other.test((test,), 600)
        known[test] = bool(failed) and not failed[0].startswith("exit code")
    return known[test]


def trial(tree, other, mutant, stages, done, usual, unsound):
    """What becomes of one mutant in the stage after `done` ones, as a row of the log.

    other: the unchanged tree. usual: by stage, the tests left out and the seconds it takes. unsound: by test that saw a
    mutant, whether it fails without one.
    """
    start = time.perf_counter()
    name = mutant["file"]
    path = tree.folder / name
    row = {key: mutant[key] for key in FIELDS}
    try:
        path.write_text(mutant["site"].apply(path.read_text()))
        if name.startswith("kernels_ext"):
            said = tree.build(BUILD_S)
            if said is not True:
                return {**row, "outcome": "no build"}
            if same_objects(tree, other):
                return {**row, "outcome": "same object"}
        stage = stages[done]
        failed, _ = tree.test(stage, SLACK_S + SLACK * usual[stage][1], usual[stage][0])
        row["seconds"] = round(time.perf_counter() - start, 1)
        if failed and "::" in failed[0] and fails_unchanged(other, failed[0], unsound):
            return {**row, "outcome": "error", "by": f"fails without a change: {failed[0]}"}
        if failed:
            return {**row, "outcome": "killed", "by": failed[0]}
        if done + 1 < len(stages):
            return {**row, "outcome": "passed", "stages": done + 1}
        return {**row, "outcome": "survived"}
    finally:
        tree.restore(other, name)


def in_threads(count, work):
    """Call work(i) in a thread for each i."""
    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def usual_times(trees, stages, known_times, tell):
    """By stage, the tests that fail without a change (they are left out) and the seconds of the whole stage."""
    found, left, broken = dict(known_times), queue.SimpleQueue(), []
    for stage in stages:
        if stage not in found:
            left.put(stage)

    def work(i):
        while True:
            try:
                stage = left.get_nowait()
            except queue.Empty:
                return
            failed, took = trees[i].test(stage, 1800, first=False)
            if failed and failed[0].startswith(("exit code", "time")):
                broken.append(f"{' '.join(stage)}, without a change: {failed[0]}")
                return
            found[stage] = failed, took
            tell({"stage": stage, "left_out": failed, "seconds": took})

    in_threads(len(trees), work)
    if broken:
        raise SystemExit("\n".join(broken))
    return found


class Sample:
    """Mutants to try, stage by stage: `wanted` that count of the untried ones, then all that passed a stage.

    untried: mutants. passed: triples of the stages passed, a number that orders, and the mutant.
    """

    def __init__(self, untried, wanted, passed, minutes):
        self.untried, self.wanted, self.passed = iter(untried), wanted, passed
        heapq.heapify(passed)
        self.counting, self.running = 0, 0
        self.lock, self.deadline = threading.Lock(), time.monotonic() + 60 * minutes

    def take(self):
        """(stages passed, order, mutant); None when nothing is left or time is up. Waits while trials may leave one."""
        while time.monotonic() < self.deadline:
            with self.lock:
                if self.counting < self.wanted and (mutant := next(self.untried, None)) is not None:
                    self.counting += 1
                    self.running += 1
                    return 0, self.counting, mutant
                if self.passed:
                    self.running += 1
                    return heapq.heappop(self.passed)
                if not self.running:
                    return None
            time.sleep(0.5)
        return None

    def ended(self, taken, row):
        done, order, mutant = taken
        with self.lock:
            self.running -= 1
            if row["outcome"] == "passed":
                heapq.heappush(self.passed, (row["stages"], order, mutant))
            elif row["outcome"] in UNCOUNTED and not done:
                self.counting -= 1


def campaign(wanted, untried, passed, times, given, tell):
    """Try `untried` mutants until `wanted` count, and finish the `passed` ones: pairs of a mutant and its stages.

    Calls tell(row) for each stage of each. Every process has a tree of its own.
    """
    folder = Path(tempfile.mkdtemp(prefix="mutate-", dir=given.folder))
    try:
        first = Tree(folder / "first", given.alone).make(jobs=given.processes)
        trees = [Tree(folder / f"tree{i}", given.alone).make(first) for i in range(given.processes)]
        tried = (*untried, *(one for one, _ in passed))
        stages = {one["id"]: (tuple(given.tests),) if given.tests else one["stages"] for one in tried}
        used = dict.fromkeys(stage for of_one in stages.values() for stage in of_one)
        sample = Sample(untried, wanted, [(done, -i, one) for i, (one, done) in enumerate(passed, 1)], given.minutes)
        usual, unsound = usual_times(trees, used, times, tell), {}

        def work(i):
            while (taken := sample.take()) is not None:
                done, _, mutant = taken
                try:
                    row = trial(trees[i], first, mutant, stages[mutant["id"]], done, usual, unsound)
                except Exception as error:  # told, and counted as no result
                    row = {key: mutant[key] for key in FIELDS} | {"outcome": "error", "by": repr(error)}
                sample.ended(taken, row)
                tell(row)

        in_threads(len(trees), work)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def report(rows):
    """Print the counts and the survivors that nothing explains; returns their number."""
    no_fault = known()
    counts = Counter(row["outcome"] for row in rows)
    survivors = [row for row in rows if row["outcome"] in ("survived", "passed")]
    open_ones = [row for row in survivors if not is_known(row, no_fault)]
    unfinished = sum(row["outcome"] == "passed" for row in open_ones)
    for row in sorted(open_ones, key=lambda row: (row["file"], row["line"])):
        stages = f"  (stages of tests passed: {row['stages']})" if row["outcome"] == "passed" else ""
        print(f"{row['file']}:{row['line']}  {row['id']}{stages}\n    {row['old']}\n    {row['new']}")
    counting = sum(counts[outcome] for outcome in COUNTED)
    print(
        f"{counting} mutants: {counts['killed']} killed, {len(survivors) - len(open_ones)} no fault (known.yaml), "
        f"{len(open_ones)} unexplained ({unfinished} not through all tests); left out: {counts['same object']} the "
        f"same object, {counts['no build']} do not compile, {counts['error']} errors"
    )
    return len(open_ones) + counts["error"]


def main():
    parser = argparse.ArgumentParser(prog="lab/tools/mutate", description=__doc__.partition("\n")[0])
    parser.add_argument("language", choices=sorted(TARGETS))
    parser.add_argument("--count", type=int, default=200, help="mutants that compile to something else (default 200)")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--log", type=Path, help="file of results; those in it are not tried again")
    parser.add_argument(
        "--again", action="store_true", help="try the unexplained survivors of the log again, nothing else"
    )
    parser.add_argument("--match", default="", help="with --again: only those of files whose name has this in it")
    parser.add_argument("--tests", nargs="+", help="with --again: these tests instead of all of the file's")
    parser.add_argument("--planted", action="store_true", help="try the changes of planted.yaml instead of a sample")
    parser.add_argument(
        "--alone", default="avx2", help="instruction set of the one build of the kernels (default avx2)"
    )
    parser.add_argument("--minutes", type=float, default=1e6, help="begin none after so many minutes")
    parser.add_argument("--folder", help="where the copies lie while it runs")
    parser.add_argument("--list", action="store_true", help="print the sample and end")
    parser.add_argument("--summary", action="store_true", help="report the log; try nothing")
    given = parser.parse_args()
    everything = planted(given.language) if given.planted else mutants(given.language, given.seed)
    rows, times = read_log(given.log)
    ids = {one["id"] for one in everything}
    rows = {key: row for key, row in rows.items() if key in ids}
    if given.list:
        for one in everything[: given.count]:
            print(f"{one['id']} {one['file']}:{one['line']}\n    {one['old']}\n    {one['new']}")
        return
    if given.tests and not given.again:
        parser.error("--tests goes with --again")
    no_fault = known()
    explained = {key for key, row in rows.items() if is_known(row, no_fault)}
    counting = sum(row["outcome"] in COUNTED for row in rows.values())
    if given.again:
        wanted = {key for key, row in rows.items() if row["outcome"] not in ("killed", "same object", "no build")}
        untried = [one for one in everything if one["id"] in wanted - explained and given.match in one["file"]]
        passed, counting = [], 0
    else:
        untried = [one for one in everything if one["id"] not in rows]
        stages = {key: row["stages"] for key, row in rows.items() if row["outcome"] == "passed"}
        passed = [(one, stages[one["id"]]) for one in everything if one["id"] in stages.keys() - explained]
    lock = threading.Lock()

    def tell(row):
        if given.tests and row.get("outcome") in COUNTED and row["outcome"] != "killed":
            row = rows[row["id"]]  # it has passed more tests than these
        with lock:
            if given.log:
                with given.log.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            if "stage" in row:
                print(
                    f"{row['seconds']:6} s  {' '.join(row['stage'])}, fail unchanged: {row['left_out']}",
                    file=sys.stderr,
                )
                return
            rows[row["id"]] = row
            counts = Counter(one["outcome"] for one in rows.values())
            print(
                f"{row['outcome']:11} {row.get('seconds', 0):6} s  {row['file']}:{row['line']}  "
                f"({counts['killed']} killed, {counts['survived']} survived, {counts['passed']} not yet through)",
                file=sys.stderr,
            )

    wanted = len(untried) if given.again or given.planted else given.count - counting
    if not given.summary and (wanted > 0 or passed):
        campaign(wanted, untried if wanted > 0 else [], passed, times, given, tell)
    sys.exit(1 if report(list(rows.values())) else 0)


if __name__ == "__main__":
    main()
