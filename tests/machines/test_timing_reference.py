"""The compiled engine against a plain second implementation of its rules, on random programs.

Transfers to global memory are left out here (their times stand in test_timing_sharing); queues, issue, waits,
signals, tails, bytes in flight, loops, the accounts of stalls, deadlocks and leaks are in.
"""

import random

import pytest
from timing_device import device, program

from hwsim.errors import ProgramError
from hwsim.machines.timing import run
from hwsim.program.ir import Buffer, CoreGroup, Instr, Kernel, LocalTile, Loop, Semaphore, Stream, Sync

ENGINES = ("M", "V", "IN", "MOVE", "OUT")
SEMAPHORES = ("a", "b", "c")


def unroll(body):
    for node in body:
        if isinstance(node, Loop):
            for _ in range(node.count):
                yield from unroll(node.body)
        else:
            yield node


def cost(instr, sync_cycles):
    """(occupancy, tail) in cycles of the two kinds of instruction used here."""
    if instr.opcode == "sync":
        return sync_cycles * instr.repeat, 0
    return (3 + -(-instr.writes[0].rows * 128 // 100)) * instr.repeat, 7


def in_flight(instr):
    return instr.writes[0].rows * 128 * instr.repeat if instr.opcode == "copy" else 0


def simulate(streams, initial, depth, issue, sync_cycles, window, queued):
    """Cycle by cycle: (end, {engine: account}, semaphores at the end, stalls of streams), or "deadlock".

    queued: waits and signals take places of the queue, too.
    """
    todo = [list(unroll(body)) for body in streams]
    ready = [issue if instrs else None for instrs in todo]
    queues, running, pending = ({e: [] for e in ENGINES} for _ in range(3))
    lacks, last = dict.fromkeys(ENGINES), dict.fromkeys(ENGINES, 0)
    value, stuck = dict(initial), {e: [] for e in ENGINES}
    account = {e: {} for e in ENGINES}
    idle = {e: [] for e in ENGINES}  # cycles since the engine's last instruction, with nothing issued to it
    stalls = [[] for _ in streams]  # (cycle, engine): the stream waited for room in that engine's queue
    end = flying = 0

    def places(instr):
        return 1 + queued * (len(instr.waits) + len(instr.signals))

    def fits(e, instr):
        return not queues[e] or sum(map(places, queues[e])) + places(instr) <= depth

    def add(e, cause, cycles):
        account[e][cause] = account[e].get(cause, 0) + cycles

    def start(e, t):
        nonlocal flying
        if running[e] or not queues[e]:
            return
        taken = {}
        for wait in queues[e][0].waits:
            if value[wait.semaphore] - taken.get(wait.semaphore, 0) < wait.count:
                lacks[e] = wait.semaphore
                return
            taken[wait.semaphore] = taken.get(wait.semaphore, 0) + wait.count
        weight = in_flight(queues[e][0])
        if weight and flying and flying + weight > window:
            lacks[e] = "in-flight"
            return
        flying += weight
        for name, count in taken.items():
            value[name] -= count
        lacks[e] = None
        instr = queues[e].pop(0)
        occupancy, tail = cost(instr, sync_cycles)
        running[e] = [(t + occupancy, tail, instr)]
        for s in stuck[e]:  # all look whether there is room for them now, in their order
            ready[s] = t
        stuck[e] = []

    def complete(instr, t):
        nonlocal end, flying
        end = max(end, t)
        flying -= in_flight(instr)
        for signal in instr.signals:
            value[signal.semaphore] += signal.count
        for signal in instr.signals:
            for e in ENGINES:
                if lacks[e] == signal.semaphore:
                    start(e, t)
        if lacks[instr.engine] == "in-flight" and in_flight(instr):
            start(instr.engine, t)

    def event(t):
        """The first actor with something to do at t does it."""
        for e in ENGINES:
            if pending[e] and pending[e][0][0] == t:
                complete(pending[e].pop(0)[1], t)
                return True
        for e in ENGINES:
            if running[e] and running[e][0][0] == t:
                _, tail, instr = running[e].pop()
                last[e] = max(last[e], t + tail)
                if last[e] == t and not pending[e]:
                    complete(instr, t)
                else:
                    pending[e].append((last[e], instr))
                start(e, t)
                return True
        for s, instrs in enumerate(todo):
            if ready[s] == t:
                e = instrs[0].engine
                if not fits(e, instrs[0]):
                    stuck[e].append(s)
                    ready[s] = None
                else:
                    full = {cycle for cycle, _ in stalls[s]}
                    add(e, "queue-full", sum(cycle in full for cycle in idle[e]))
                    add(e, "empty", sum(cycle not in full for cycle in idle[e]))
                    idle[e] = []
                    queues[e].append(instrs.pop(0))
                    ready[s] = t + issue if instrs else None
                    start(e, t) if lacks[e] is None else None
                return True
        return False

    t = 0
    while True:
        while event(t):
            pass
        if not any(running.values()) and not any(pending.values()) and all(r is None for r in ready):
            break
        for e in ENGINES:
            if running[e]:
                add(e, "busy", 1)
            elif lacks[e]:
                add(e, lacks[e] if lacks[e] == "in-flight" else f"semaphore:{lacks[e]}", 1)
            else:
                idle[e].append(t)
            for s in stuck[e]:
                stalls[s].append((t, e))
        t += 1
    if any(queues.values()):
        return "deadlock"
    for e, cycles in idle.items():
        add(e, "done", len(cycles))
    return end, {e: {k: v for k, v in parts.items() if v} for e, parts in account.items()}, value, stalls


def random_program(seed):
    rng = random.Random(seed)
    initial = {name: rng.randrange(6) for name in SEMAPHORES}
    balance = rng.random() < 0.6  # most programs signal what they await

    def syncs(most):
        return tuple(Sync(rng.choice(SEMAPHORES), rng.randint(1, 2)) for _ in range(rng.randrange(most + 1)))

    def instr():
        waits = syncs(rng.choice((1, 2)))
        signals = waits if balance and rng.random() < 0.5 else syncs(2)
        if rng.random() < 0.3:
            tile = LocalTile("la", rng.randint(1, 9), 64, "fp16")
            return Instr(
                "MOVE",
                "copy",
                (tile,),
                (LocalTile("l1", tile.rows, 64, "fp16"),),
                waits,
                signals,
                repeat=rng.randint(1, 2),
            )
        return Instr(rng.choice(ENGINES), "sync", waits=waits, signals=signals, repeat=rng.randint(1, 3))

    def body(level):
        nodes = []
        for _ in range(rng.randint(1, 4)):
            if level < 2 and rng.random() < 0.4:
                nodes.append(Loop(f"l{rng.random()}", rng.randint(1, 4), body(level + 1)))
            else:
                nodes.append(instr())
        if balance and level == 0:  # give and take once more what is missing, on an engine of its own
            sums = dict.fromkeys(SEMAPHORES, 0)
            for i in unroll(nodes):
                for s in i.signals:
                    sums[s.semaphore] += s.count
                for w in i.waits:
                    sums[w.semaphore] -= w.count
            give = tuple(Sync(n, -v) for n, v in sums.items() if v < 0)
            take = tuple(Sync(n, v) for n, v in sums.items() if v > 0)
            nodes.insert(0, Instr("OUT", "sync", signals=give))
            nodes.append(Instr("OUT", "sync", waits=take))
        return tuple(nodes)

    streams = [body(0) for _ in range(rng.randint(1, 3))]
    return streams, initial, rng.randint(1, 4), rng.randint(1, 3), rng.randrange(5), rng.choice((1, 500, 1200, 9999))


@pytest.mark.covering("queued", "block")
@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize("block", range(8))
def test_engine_agrees_with_the_plain_simulation(block, queued):
    seen = {"deadlock": 0, "leak": 0, "done": 0, "queue-full": 0, "in-flight": 0}
    for seed in range(block * 100, block * 100 + 100):
        streams, initial, depth, issue, sync_cycles, window = random_program(seed)
        expected = simulate(streams, initial, depth, issue, sync_cycles, window, queued)
        dev = device(
            flags={"per_pipe_pair": 1, "queued": queued},
            links__L1_LA__in_flight_bytes=window,
            **{
                f"engines__{e}": {"queue_depth": depth, "issue_cycles": float(issue), "sync_cycles": sync_cycles}
                for e in ENGINES
            },
        )
        kernel = Kernel(
            "k",
            (CoreGroup(0, 1, tuple(Stream(f"s{i}", body) for i, body in enumerate(streams))),),
            (Buffer("l1", "L1", 1, 4096), Buffer("la", "LA", 1, 4096)),
            tuple(Semaphore(name, count) for name, count in initial.items()),
        )
        try:
            timing = run(program(kernel), dev)
        except ProgramError as error:
            kind = "deadlock" if "deadlock" in str(error) else "leak"
            seen[kind] += 1
            if kind == "deadlock":
                assert expected == "deadlock", seed
            else:
                assert expected[2] != initial, seed
            continue
        seen["done"] += 1
        assert expected != "deadlock", seed
        assert timing.cycles == expected[0], seed
        assert expected[2] == initial, seed
        got = {
            name: {k: v for k, v in {"busy": part.busy_cycles, **part.stall_cycles}.items() if v}
            for name, part in timing.engines.items()
        }
        assert got == expected[1], seed
        waited = {(f"s{i}", e): sum(on == e for _, on in at) for i, at in enumerate(expected[3]) for e in ENGINES}
        assert timing.streams == {k: v for k, v in waited.items() if v}, seed
        for name in ("queue-full", "in-flight"):
            seen[name] += any(name in parts for parts in expected[1].values())
    assert min(seen.values()) >= 5, seen  # every outcome is met
