"""Runs numbered cases in processes, with a log from which a stopped campaign goes on and to which others add.

It knows numbers, processes and logs; it does not know what a case does. A case is a function of its number alone: it
returns a word for what came of it, or that and what it reached, as (group, name, count), and raises for a fault. A case
fails too where it needs more than HANG_S seconds of processor time (a campaign may allow more), or kills its process.

Exit code 0: all cases that were asked for have run, without a fault. 1: there is a fault. 2: there is none, and cases
are left, because the time (`--seconds`) was up; how many is said, and the same command with a log goes on.
"""

import argparse
import json
import math
import multiprocessing
import os
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from multiprocessing.connection import wait
from pathlib import Path

CHUNK = 100
HANG_S = 60.0 if "ASAN_OPTIONS" in os.environ else 5.0  # under sanitizers all takes several times as long
DEAD_S = 120.0  # without a word from a process
MEMORY_BYTES = 6 << 30  # that a process may take beside what it has when it starts


class Hang(BaseException):
    """A case took too long."""


def _alarm(*_):
    raise Hang


def _outcome(case, number, limit):
    """(word, what it reached, fault or None) of one case. limit: seconds of processor time, at least HANG_S."""
    signal.setitimer(signal.ITIMER_PROF, max(limit, HANG_S))
    try:
        said = case(number)
        return (said, [], None) if isinstance(said, str) else (said[0], list(said[1]), None)
    except Hang:
        return "hang", [], "".join(traceback.format_exc(limit=-8))
    except Exception:
        return "fault", [], "".join(traceback.format_exc(limit=-8))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _address_space():
    """Bytes of this process's address space; sanitizers take terabytes of it at its start."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _work(case, limit, connection):
    """Take chunks from a connection until it closes."""
    signal.signal(signal.SIGPROF, _alarm)
    most = _address_space() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    parent = os.getppid()
    while True:
        while not connection.poll(1.0):
            if os.getppid() != parent:  # ended without a word
                return
        try:
            first, count = connection.recv()
        except EOFError:
            return
        words, faults, reached, start = Counter(), [], {}, time.process_time()
        for number in range(first, first + count):
            connection.send(number)
            word, places, fault = _outcome(case, number, limit)
            words[word] += 1
            for group, name, times in places:
                reached.setdefault(group, Counter())[name] += times
            if fault is not None:
                faults.append({"number": number, "fault": fault})
        seconds = round(time.process_time() - start, 2)
        row = {"first": first, "count": count, "words": dict(words), "faults": faults, "seconds": seconds}
        connection.send(row | ({"reached": reached} if reached else {}))


class _Worker:
    def __init__(self, context, case, limit):
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_work, args=(case, limit, other), daemon=True)
        self.process.start()
        other.close()
        self.chunk, self.number, self.heard = None, None, time.monotonic()

    def give(self, chunk):
        self.chunk, self.heard = chunk, time.monotonic()
        self.connection.send(chunk)


def _done(log, name):
    """The chunks that a log holds, by their first number."""
    if log is None or not log.exists():
        return {}
    rows = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]
    return {row["first"]: row for row in rows if row["campaign"] == name}


def _chunks(first, count, done):
    for at in range(first, first + count, CHUNK):
        size = min(CHUNK, first + count - at)
        if at not in done or done[at]["count"] < size:
            yield at, size


def campaign(name, case, first, count, processes, log, seconds=None, limit=0.0):
    """Run the cases that the log does not hold; returns the rows of all chunks in this range. seconds: after so many no
    chunk begins. limit: as of `_outcome`.
    """
    context = multiprocessing.get_context("fork")
    found = {at: row for at, row in _done(log, name).items() if first <= at < first + count}
    left = list(_chunks(first, count, found))[::-1]
    end = math.inf if seconds is None else time.monotonic() + seconds
    workers = [_Worker(context, case, limit) for _ in range(min(processes, len(left)))]
    for worker in workers:
        worker.give(left.pop())

    def finish(row):
        row = {"campaign": name, **row}
        found[row["first"]] = row
        if log is not None:
            with log.open("a") as file:
                file.write(json.dumps(row) + "\n")
        done = sum(x["count"] for x in found.values())
        print(
            f"\r{done:,} of {count:,}, {sum(len(x['faults']) for x in found.values())} faults", end="", file=sys.stderr
        )

    def lost(worker, why):
        """Keep what killed a process, and go on behind it."""
        worker.process.kill()
        number, (at, size) = worker.number if worker.number is not None else worker.chunk[0], worker.chunk
        finish(
            {
                "first": at,
                "count": size,
                "words": {"dead": 1},
                "seconds": 0.0,
                "faults": [{"number": number, "fault": f"{why}; the rest of its chunk was not run"}],
            }
        )

    while workers:
        ready = wait([worker.connection for worker in workers], timeout=5)
        for worker in list(workers):
            ended = None
            if worker.connection in ready:
                worker.heard = time.monotonic()
                try:
                    said = worker.connection.recv()
                except (EOFError, OSError):
                    ended = "the process died"
                else:
                    if isinstance(said, int):
                        worker.number = said
                        continue
                    finish(said)
                    if left and time.monotonic() < end:
                        worker.give(left.pop())
                    else:
                        worker.connection.close()
                        workers.remove(worker)
                    continue
            elif time.monotonic() - worker.heard > DEAD_S:
                ended = f"no word for {DEAD_S:.0f} s"
            if ended:
                lost(worker, ended)
                workers.remove(worker)
                if left and time.monotonic() < end:
                    workers.append(_Worker(context, case, limit))
                    workers[-1].give(left.pop())
    print(file=sys.stderr)
    return list(found.values())


def report(rows):
    """Print the totals and the faults, those alike once; returns their number."""
    words, kinds, examples, reached = Counter(), Counter(), {}, {}
    for row in rows:
        words.update(row["words"])
        for group, names in row.get("reached", {}).items():
            reached.setdefault(group, Counter()).update(names)
        for fault in row["faults"]:
            lines = fault["fault"].strip().splitlines()
            place = next((x.strip() for x in reversed(lines) if x.strip().startswith("File ")), "")
            kind = (place, lines[-1].split(":")[0])
            kinds[kind] += 1
            examples.setdefault(kind, (fault["number"], lines[-1][:200]))
    total = sum(row["count"] for row in rows)
    print(
        f"{total:,} cases, {sum(row['seconds'] for row in rows):,.0f} s of processor time: "
        + ", ".join(f"{n:,} {w}" for w, n in words.most_common())
    )
    for group, names in sorted(reached.items()):
        print(f"{group}: " + ", ".join(f"{n:,} {name}" for name, n in names.most_common()))
    for kind, count in kinds.most_common():
        number, text = examples[kind]
        print(f"{count:6} {kind[0]}\n       {text}\n       again: --number {number}")
    print(f"{sum(kinds.values())} faults, {len(kinds)} kinds")
    return sum(kinds.values())


def main(name, case, description, limit=0.0):
    """The command line of a campaign, whose exit codes stand above. limit: seconds of processor time of a case, where
    it is more than HANG_S.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--count", type=int, default=2000, help="cases (default 2000)")
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--seconds", type=float, help="stop after so many, at the end of a chunk; what is left is said")
    parser.add_argument("--log", type=Path, help="file that chunks are added to; those in it are not run again")
    parser.add_argument("--number", type=int, help="run this one case here, with its traceback")
    parser.add_argument("--summary", type=Path, nargs="+", metavar="LOG", help="add up logs; run nothing")
    given = parser.parse_args()
    if given.number is not None:
        print(case(given.number))
        return
    if given.summary:
        rows = [row for log in given.summary for row in _done(log, name).values()]
        sys.exit(1 if report(rows) else 0)
    rows = campaign(name, case, given.first, given.count, given.processes, given.log, given.seconds, limit)
    faults, left = report(rows), given.count - sum(row["count"] for row in rows)
    if left:
        goes_on = "the same command goes on" if given.log is not None else "without --log all begin anew"
        print(f"{left:,} of {given.count:,} cases are left: the time was up; {goes_on}")
    sys.exit(1 if faults else 2 if left else 0)
