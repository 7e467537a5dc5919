"""Run the microbenchmarks on the first GPU: a set of microbenchmarks.csv for each group.

    python measure.py --out FOLDER --device h200 [--groups matrix,vector] [--build FOLDER | --library libmeasure.so]

While a group runs, FOLDER/GROUP.json has what is done of it, written after every case; when all its cases have numbers,
they become rows of FOLDER/microbenchmarks.csv and an entry of FOLDER/sets.yaml, and that file goes.
Needs an NVIDIA Hopper GPU, NumPy, and nvcc unless --library names a built library. Each group runs in a process of
its own; a case that fails or hangs is noted, and the group goes on with the next one in a fresh process.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cases
import tidy
from library import CudaError, Library, build
from nvml import Sampler

METHOD = (
    "SM cycles by clock64 of thread 0; what lies outside the loop falls out of the difference of two loop counts, "
    "median of three pairs and of the blocks; bandwidths by the global timer, first block's start to last block's end"
)


class TimeUpError(Exception):
    """Time is up."""


class Keeper:
    """The results of a group, on disk after every case. Cases that are there already are not run again."""

    def __init__(self, path: Path, head: dict[str, Any], deadline: float) -> None:
        self.path, self.deadline = path, deadline
        self.data = json.loads(path.read_text()) if path.exists() else {**head, "results": {}}

    def write(self) -> None:
        """Replace the file."""
        fresh = self.path.with_suffix(".part")
        fresh.write_text(json.dumps(self.data, indent=1))
        fresh.replace(self.path)

    def put(self, name: str, work: Callable[[], Any]) -> None:
        """Run a case, unless it was run or killed this process before."""
        results = self.data["results"]
        if name in results:
            return
        if time.time() > self.deadline:
            raise TimeUpError
        results[name] = {"error": "did not come back"}
        self.write()
        try:
            results[name] = work()
        except CudaError as error:
            results[name] = {"error": str(error)}
            self.write()
            # The context may be lost: the parent starts another process, which goes on after this case.
            raise
        except (ArithmeticError, ValueError, KeyError, IndexError) as error:
            results[name] = {"error": f"{type(error).__name__}: {error}"}
        self.write()


def child(group: str, path: Path, library: Path, deadline: float) -> None:
    """Run one group in this process."""
    lib = Library(library)
    with Sampler() as sampler:
        limits = sampler.limits() if sampler.c else {}
    head = {
        "what": f"microbenchmarks, group {group}: {cases.GROUPS[group].__doc__}",
        "date": time.strftime("%Y-%m-%d"),
        "device": {**lib.device(), **limits},
        "method": METHOD,
    }
    keeper = Keeper(path, head, deadline)
    try:
        cases.GROUPS[group](lib, keeper.put)
    except TimeUpError:
        keeper.data["incomplete"] = "time was up"
    keeper.write()


def watch(command: list[str], path: Path, patience: float = 25) -> int:
    """Run a child; end it when its file has not changed for `patience` seconds."""
    process, began = subprocess.Popen(command), time.time()
    while process.poll() is None:
        time.sleep(0.1)
        changed = path.stat().st_mtime if path.exists() else began
        if time.time() - max(changed, began) > patience:
            process.kill()
            process.wait()
    return int(process.returncode)


def keep(folder: Path, group: str, device: str) -> None:
    """Turn a finished group's JSON into rows. A group with a case that failed, or with none, keeps its file."""
    path = folder / f"{group}.json"
    data = json.loads(path.read_text()) if path.exists() else {"results": {}}
    failed = [f"{case}: {found['error']}" for case, found in data["results"].items() if "error" in found]
    if failed or not data["results"] or "incomplete" in data:
        print(f"{group}: no rows; {'; '.join(failed) or data.get('incomplete', 'nothing was measured')}", flush=True)
        return
    head = {"set": group, "date": data["date"], "device": device}
    rows = [head | row for row in tidy.observations(data["results"])]
    tidy.append(folder, "microbenchmarks", rows)
    command = f"python {' '.join(sys.argv)}"
    tidy.describe(folder, group, what=data["what"], method=data["method"], hardware=data["device"], command=command)
    path.unlink()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", help="name of its file in configs/devices")
    parser.add_argument("--groups", default=",".join(cases.GROUPS))
    parser.add_argument("--build", type=Path, default=Path("build-measure"))
    parser.add_argument("--library", type=Path)
    parser.add_argument("--seconds", type=float, default=600, help="for all groups")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--deadline", type=float, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.child:
        child(args.child, args.out / f"{args.child}.json", args.library, args.deadline)
        return
    if not args.device:
        parser.error("--device is needed")
    known = [group for group in args.groups.split(",") if tidy.is_described(args.out, group)]
    if known:
        parser.error(f"{args.out / 'sets.yaml'} has {', '.join(known)} already; take another folder")
    library = args.library or build(args.build)
    deadline = time.time() + args.seconds
    for group in args.groups.split(","):
        began = time.time()
        for _ in range(6):
            command = [sys.executable, __file__, "--child", group, "--out", str(args.out)]
            command += ["--library", str(library.resolve()), "--deadline", str(deadline)]
            code = watch(command, args.out / f"{group}.json")
            if code == 0:
                break
            print(f"{group}: ended with {code}", flush=True)
        print(f"{group}: {time.time() - began:.1f} s", flush=True)
        keep(args.out, group, args.device)


if __name__ == "__main__":
    main()
