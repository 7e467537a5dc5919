"""Runs one core's streams symbolically and writes down the array work that gives their bits.

A copy of a global tile that the kernel does not write is no work: the slot only remembers where its
content lies. Products accumulated one after the other in one slot become one job over all of their K.
Instructions start in any order that queues and semaphores allow; what remains is a list of jobs to be
carried out in the order given. What cores of other groups signal is there: they are executed before
(hwsim.program.peers). This module knows the tables of hwsim.program.flat, not arithmetic.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset

import numpy as np

ctypedef int64_t i64

cdef enum:
    NODE_INSTR = 0
    NODE_LOOP = 1
    NODE_END = 2
    NODE_ADVANCE = 3
    TILE_GLOBAL = 0
    TILE_LOCAL = 1
    OP_COPY = 0
    OP_MMA = 1
    OP_SYNC = 8
    EMPTY = 0      # nothing known: the slot's own bytes
    ALIAS = 1      # a region of a global array
    CHAIN = 2      # a pending chain of products
    MAX_TILES = 8  # of an instruction
    QUEUE = 1024
    GIVEN = 1 << 30  # more than a core waits for
    JOB_COLUMNS = 11
    PLACE_COLUMNS = 6

# Job: kind (0 elementwise or copy, 1 chain), instruction, destination (kind, object, slot, row, col), first segment,
# number of segments; chain: starts from zero, the power of two that divides the accumulator first.
# Segment: for each operand that the instruction reads, in its order, (kind, object, slot, row, col, length along K);
# what it has less than the kernel's largest instruction is 0. A job that is no chain has one segment.

cdef struct Place:
    i64 kind, obj, slot, row, col
    i64 length           # along K, of the operands of a chain

cdef struct Dyn:
    i64 instr
    bint zero
    i64 slot[MAX_TILES]
    i64 row[MAX_TILES]
    i64 col[MAX_TILES]

cdef struct Slot:
    int kind
    i64 array, row, col  # of the region
    i64 instr            # the copy of the region; the latest of the chain
    bint from_zero
    i64 scale            # of the chain: its accumulator counts times 2^-scale
    i64 seg_first        # segments of a chain, a linked list by index
    i64 seg_last

cdef struct Vector:
    i64* data
    i64 size, room


cdef int _push(Vector* v, const i64* row, i64 n) except -1:
    cdef i64 i
    if v.size + n > v.room:
        v.room = max(2 * v.room, v.size + n + 4096)
        v.data = <i64*>realloc(v.data, v.room * sizeof(i64))
        if v.data == NULL:
            raise MemoryError
    for i in range(n):
        v.data[v.size + i] = row[i]
    v.size += n
    return 0


cdef class _Walker:
    """The next instruction of one stream, with the values of its loops, counters and derived variables."""

    cdef i64[:, ::1] nodes, derived, affine, term
    cdef i64* variables
    cdef i64 at
    cdef readonly bint done

    def __cinit__(self, flat, i64[:, ::1] affine, i64[:, ::1] term, i64 core):
        self.nodes, self.derived, self.affine, self.term = flat.nodes, flat.derived, affine, term
        self.variables = <i64*>calloc(len(flat.variables), sizeof(i64))
        if self.variables == NULL:
            raise MemoryError
        self.variables[0] = core
        self.at = 0
        self.done = False
        self._settle()

    def __dealloc__(self):
        free(self.variables)

    cdef void _settle(self):
        """Go on to the next instruction node."""
        cdef i64 kind
        while self.at < self.nodes.shape[0]:
            kind = self.nodes[self.at, 0]
            if kind == NODE_INSTR:
                self._derive()
                return
            if kind == NODE_LOOP:
                self.variables[self.nodes[self.at, 1]] = 0
                self.at += 1
            elif kind == NODE_END:
                self.variables[self.nodes[self.at, 1]] += 1
                if self.variables[self.nodes[self.at, 1]] < self.nodes[self.at, 2]:
                    self.at = self.nodes[self.at, 3]
                else:
                    self.at += 1
            else:
                self.variables[self.nodes[self.at, 1]] += self.nodes[self.at, 2]
                self.at += 1
        self.done = True

    cdef void _derive(self):
        """The derived variables, from the others as they are now; quotients are rounded down."""
        cdef i64 i, value, divisor, rest
        for i in range(self.derived.shape[0]):
            value, divisor = self.value(self.derived[i, 1]), self.derived[i, 2]
            rest = value % divisor
            if rest < 0:
                rest += divisor
            self.variables[self.derived[i, 0]] = rest if self.derived[i, 3] else (value - rest) // divisor

    cdef i64 next_instr(self):
        return -1 if self.done else self.nodes[self.at, 1]

    cdef void step(self):
        self.at += 1
        self._settle()

    cdef i64 value(self, i64 index):
        cdef i64 i, out = self.affine[index, 0]
        for i in range(self.affine[index, 1], self.affine[index, 1] + self.affine[index, 2]):
            out += self.term[i, 1] * self.variables[self.term[i, 0]]
        return out


cdef class Coalescer:
    """One kernel of a program; `run(group, core)` gives the jobs of one core.

    written: per global array, whether the kernel writes it. Per instruction: steps, the K that a chain is only
    joined at multiples of, that of the matrix instruction; chains, the number of the kind of chain that it goes on
    with; along_rows, a bit for each operand that it reads: whether K runs along its rows. layouts: per tile, the number
    of its format and of the elements in a row of its slot.
    """

    cdef i64[:, ::1] instr, tile, affine, term, sync, zero_list, zero_variable
    cdef i64[::1] buffer_slots, semaphore_initial, slot_base, written, steps, chains, along_rows, layouts
    cdef object streams
    cdef i64 n_engines, n_slots, most_reads
    cdef Slot* slots
    cdef Place* places   # of the segments, most_reads of each
    cdef i64* follows    # of each segment, the next of its chain
    cdef i64 n_segments, segment_room
    cdef Vector jobs, segment_rows
    cdef Dyn* queues
    cdef i64* head
    cdef i64* length
    cdef i64* semaphores

    def __cinit__(self, flat, i64 n_engines, written, steps, chains, along_rows, layouts):
        self.instr, self.tile, self.affine, self.term = flat.instr, flat.tile, flat.affine, flat.term
        self.sync, self.zero_list, self.zero_variable = flat.sync, flat.zero_list, flat.zero_variable
        self.buffer_slots = flat.buffer_slots
        self.semaphore_initial = np.where(flat.semaphore_peers != 0, GIVEN, flat.semaphore_initial)
        self.streams, self.n_engines = flat.streams, n_engines
        self.written, self.steps = np.asarray(written, np.int64), np.asarray(steps, np.int64)
        self.chains, self.along_rows = np.asarray(chains, np.int64), np.asarray(along_rows, np.int64)
        self.layouts = np.asarray(layouts, np.int64)
        self.most_reads = max(1, int(np.max(flat.instr[:, 5], initial=0)))
        if self.most_reads >= MAX_TILES:
            raise ValueError(f"an instruction reads {self.most_reads} tiles; at most {MAX_TILES - 1} are allowed")
        base = np.concatenate([[0], np.cumsum(np.asarray(flat.buffer_slots))]).astype(np.int64)
        self.slot_base, self.n_slots = base, int(base[len(base) - 1])
        self.slots = <Slot*>calloc(self.n_slots + 1, sizeof(Slot))
        self.queues = <Dyn*>malloc(n_engines * QUEUE * sizeof(Dyn))
        self.head = <i64*>calloc(n_engines, sizeof(i64))
        self.length = <i64*>calloc(n_engines, sizeof(i64))
        self.semaphores = <i64*>calloc(len(flat.semaphore_initial) + 1, sizeof(i64))
        if not (self.slots and self.queues and self.head and self.length and self.semaphores):
            raise MemoryError

    def __dealloc__(self):
        free(self.slots)
        free(self.places)
        free(self.follows)
        free(self.queues)
        free(self.head)
        free(self.length)
        free(self.semaphores)
        free(self.jobs.data)
        free(self.segment_rows.data)

    def run(self, int group, i64 core):
        """Return (jobs, segments), int64 arrays, for core `core` of group `group`.

        Raises RuntimeError when nothing can go on (the program deadlocks).
        """
        cdef i64 i
        cdef _Walker walker
        memset(self.slots, 0, self.n_slots * sizeof(Slot))
        for i in range(self.n_engines):
            self.head[i] = self.length[i] = 0
        for i in range(self.semaphore_initial.shape[0]):
            self.semaphores[i] = self.semaphore_initial[i]
        self.n_segments = self.jobs.size = self.segment_rows.size = 0
        walkers = []
        for flat in self.streams[group]:
            walker = _Walker(flat, self.affine, self.term, core)
            walkers.append(walker)
        cdef bint moved, pending
        while True:
            moved = False
            for walker in walkers:
                while self._issue(walker):
                    moved = True
                    while self._drain():
                        pass
            while self._drain():
                moved = True
            pending = False
            for walker in walkers:
                pending = pending or not walker.done
            for i in range(self.n_engines):
                pending = pending or self.length[i] > 0
            if not pending:
                break
            if not moved:
                raise RuntimeError("deadlock")
        return self._array(&self.jobs, JOB_COLUMNS), self._array(&self.segment_rows, self._segment_columns())

    cdef i64 _segment_columns(self):
        return PLACE_COLUMNS * self.most_reads

    cdef object _array(self, Vector* v, i64 columns):
        out = np.empty(v.size, np.int64)
        cdef i64[::1] view = out
        cdef i64 i
        for i in range(v.size):
            view[i] = v.data[i]
        return out.reshape(-1, columns)

    cdef bint _issue(self, _Walker walker) except -1:
        """Put the stream's next instruction into its engine's queue; False when it cannot go on."""
        cdef i64 index = walker.next_instr()
        if index < 0:
            return False
        cdef i64 engine = self.instr[index, 0]
        if self.length[engine] == QUEUE:
            return False
        cdef Dyn* dyn = &self.queues[engine * QUEUE + (self.head[engine] + self.length[engine]) % QUEUE]
        cdef i64 first = self.instr[index, 3], count = self.instr[index, 4] + self.instr[index, 5], t, i
        dyn.instr = index
        for t in range(count):
            if self.tile[first + t, 0] == TILE_GLOBAL:
                dyn.row[t] = walker.value(self.tile[first + t, 4])
                dyn.col[t] = walker.value(self.tile[first + t, 5])
                dyn.slot[t] = 0
            else:
                dyn.slot[t] = walker.value(self.tile[first + t, 6])
                dyn.slot[t] %= self.buffer_slots[self.tile[first + t, 1]]
                dyn.row[t], dyn.col[t] = self.tile[first + t, 7], self.tile[first + t, 8]
        cdef i64 zero = self.instr[index, 10]
        dyn.zero = zero >= 0
        if zero >= 0:
            for i in range(self.zero_list[zero, 1]):
                if walker.variables[self.zero_variable[self.zero_list[zero, 0] + i, 0]] != 0:
                    dyn.zero = False
        self.length[engine] += 1
        walker.step()
        return True

    cdef bint _drain(self) except -1:
        """Run the head of one engine's queue whose waits are met; False when there is none."""
        cdef i64 engine, i, index
        cdef bint ready
        cdef Dyn* dyn
        for engine in range(self.n_engines):
            if self.length[engine] == 0:
                continue
            dyn = &self.queues[engine * QUEUE + self.head[engine]]
            index = dyn.instr
            ready = True
            for i in range(self.instr[index, 6], self.instr[index, 6] + self.instr[index, 7]):
                ready = ready and self.semaphores[self.sync[i, 0]] >= self.sync[i, 1]
            if not ready:
                continue
            for i in range(self.instr[index, 6], self.instr[index, 6] + self.instr[index, 7]):
                self.semaphores[self.sync[i, 0]] -= self.sync[i, 1]
            self._execute(dyn)
            for i in range(self.instr[index, 8], self.instr[index, 8] + self.instr[index, 9]):
                self.semaphores[self.sync[i, 0]] += self.sync[i, 1]
            self.head[engine] = (self.head[engine] + 1) % QUEUE
            self.length[engine] -= 1
            return True
        return False

    cdef Slot* _slot(self, Dyn* dyn, i64 t):
        return &self.slots[self.slot_base[self.tile[self.instr[dyn.instr, 3] + t, 1]] + dyn.slot[t]]

    cdef Place _place(self, Dyn* dyn, i64 t) except *:
        """Where tile `t` lies now: a global region (also of an alias) or the slot's own bytes."""
        cdef Place place
        cdef i64 row = self.instr[dyn.instr, 3] + t
        cdef Slot* slot
        place.kind, place.obj = self.tile[row, 0], self.tile[row, 1]
        place.slot, place.row, place.col, place.length = dyn.slot[t], dyn.row[t], dyn.col[t], 0
        if place.kind != TILE_GLOBAL:
            slot = self._slot(dyn, t)
            if slot.kind == CHAIN or (slot.kind == ALIAS and not self._within(slot, dyn, t)):
                self._flush(slot, dyn, t)
            elif slot.kind == ALIAS:
                place.kind, place.obj, place.slot = TILE_GLOBAL, slot.array, 0
                place.row += slot.row
                place.col += slot.col
        return place

    cdef bint _within(self, Slot* slot, Dyn* dyn, i64 t):
        """Whether tile `t` is a part of the region that its slot holds, which lies there from the slot's begin."""
        cdef i64 copied = self.instr[slot.instr, 3], tile = self.instr[dyn.instr, 3] + t
        return (self.layouts[tile] == self.layouts[copied]
                and dyn.row[t] + self.tile[tile, 2] <= self.tile[copied, 2]
                and dyn.col[t] + self.tile[tile, 3] <= self.tile[copied, 3])

    cdef bint _covers(self, Dyn* dyn, Slot* slot):
        """Whether what is written hides all of the region that the slot holds."""
        cdef i64 copied = self.instr[slot.instr, 3], tile = self.instr[dyn.instr, 3]
        return (self.layouts[tile] == self.layouts[copied] and dyn.row[0] == 0 and dyn.col[0] == 0
                and self.tile[tile, 2] >= self.tile[copied, 2] and self.tile[tile, 3] >= self.tile[copied, 3])

    cdef int _flush(self, Slot* slot, Dyn* dyn, i64 t) except -1:
        """Write the chain or the copy pending in a slot down as a job; its result then lies in the slot's bytes."""
        cdef i64 row[JOB_COLUMNS]
        cdef Place source
        cdef i64 at = slot.seg_first, n = 0
        memset(row, 0, sizeof(row))
        row[0], row[1] = slot.kind == CHAIN, slot.instr
        row[2], row[3], row[4] = TILE_LOCAL, self.tile[self.instr[dyn.instr, 3] + t, 1], dyn.slot[t]
        row[7] = self.segment_rows.size // self._segment_columns()
        if slot.kind == ALIAS:
            source.kind, source.obj, source.slot = TILE_GLOBAL, slot.array, 0
            source.row, source.col, source.length = slot.row, slot.col, 0
            self._write(&source, 1)
            row[8] = 1
        else:
            while at >= 0:
                self._write(&self.places[at * self.most_reads], self.instr[slot.instr, 5])
                n += 1
                at = self.follows[at]
            row[8], row[9], row[10] = n, slot.from_zero, slot.scale
        _push(&self.jobs, row, JOB_COLUMNS)
        slot.kind = EMPTY
        return 0

    cdef int _write(self, const Place* places, i64 count) except -1:
        """Add a row of `count` places to the segments."""
        cdef i64 row[PLACE_COLUMNS * MAX_TILES]
        cdef i64 t
        memset(row, 0, sizeof(row))
        for t in range(count):
            row[PLACE_COLUMNS * t], row[PLACE_COLUMNS * t + 1] = places[t].kind, places[t].obj
            row[PLACE_COLUMNS * t + 2], row[PLACE_COLUMNS * t + 3] = places[t].slot, places[t].row
            row[PLACE_COLUMNS * t + 4], row[PLACE_COLUMNS * t + 5] = places[t].col, places[t].length
        return _push(&self.segment_rows, row, self._segment_columns())

    cdef int _execute(self, Dyn* dyn) except -1:
        cdef i64 opcode = self.instr[dyn.instr, 1]
        if opcode == OP_SYNC:
            return 0
        if opcode == OP_MMA:
            return self._mma(dyn)
        cdef i64 first = self.instr[dyn.instr, 3], reads = self.instr[dyn.instr, 5], t
        cdef Place source[MAX_TILES]
        for t in range(reads):
            source[t] = self._place(dyn, t + 1)
        cdef Slot* target
        if self.tile[first, 0] != TILE_GLOBAL:
            target = self._slot(dyn, 0)
            if target.kind == CHAIN or (target.kind == ALIAS and not self._covers(dyn, target)):
                self._flush(target, dyn, 0)
            target.kind = EMPTY
            if (opcode == OP_COPY and source[0].kind == TILE_GLOBAL and not self.written[source[0].obj]
                    and dyn.row[0] == 0 and dyn.col[0] == 0):
                target.kind, target.instr = ALIAS, dyn.instr
                target.array, target.row, target.col = source[0].obj, source[0].row, source[0].col
                return 0
        cdef i64 row[JOB_COLUMNS]
        row[0], row[1] = 0, dyn.instr
        row[2], row[3], row[4] = self.tile[first, 0], self.tile[first, 1], dyn.slot[0]
        row[5], row[6] = dyn.row[0], dyn.col[0]
        row[7], row[8] = self.segment_rows.size // self._segment_columns(), 1
        row[9] = row[10] = 0
        self._write(source, reads)
        return _push(&self.jobs, row, JOB_COLUMNS)

    cdef int _mma(self, Dyn* dyn) except -1:
        # A repeated instruction that starts from zero leaves the last repetition's product.
        cdef i64 repeats = 1 if dyn.zero else self.instr[dyn.instr, 2]
        cdef i64 reads = self.instr[dyn.instr, 5], t, tile
        cdef Place operand[MAX_TILES]
        cdef bint in_place = True  # all operands lie in global memory, where they stay as they are
        for t in range(reads):
            operand[t] = self._place(dyn, t + 1)
            tile = self.instr[dyn.instr, 3] + 1 + t
            operand[t].length = self.tile[tile, 2 if self.along_rows[dyn.instr] >> t & 1 else 3]
            in_place = in_place and operand[t].kind == TILE_GLOBAL
        cdef Slot* slot = self._slot(dyn, 0)
        cdef i64 scale = 0 if dyn.zero else self.instr[dyn.instr, 11]
        if slot.kind == ALIAS:
            self._flush(slot, dyn, 0)
        while repeats > 0:
            repeats -= 1
            if slot.kind == CHAIN and (scale or self.chains[slot.instr] != self.chains[dyn.instr]):
                self._flush(slot, dyn, 0)  # what is there already must be known before it is scaled
            if dyn.zero or slot.kind != CHAIN:
                slot.kind, slot.from_zero, slot.scale, slot.seg_first, slot.seg_last = CHAIN, dyn.zero, scale, -1, -1
            slot.instr = dyn.instr
            if not (slot.seg_last >= 0 and in_place and self._joined(&self.places[slot.seg_last * self.most_reads], operand, dyn)):
                self._append(slot, operand, reads)
        if not in_place:
            self._flush(slot, dyn, 0)  # the operands' bytes may change before the chain is read
        return 0

    cdef bint _joined(self, Place* last, const Place* operand, Dyn* dyn):
        """Whether a segment now has these operands too, because each follows its own along K in global memory."""
        cdef i64 t, rows
        cdef const Place* before
        if last[0].length % self.steps[dyn.instr]:
            return False
        for t in range(self.instr[dyn.instr, 5]):
            before, rows = &last[t], self.along_rows[dyn.instr] >> t & 1
            if (before.kind != TILE_GLOBAL or before.obj != operand[t].obj
                    or before.row + (before.length if rows else 0) != operand[t].row
                    or before.col + (0 if rows else before.length) != operand[t].col):
                return False
        for t in range(self.instr[dyn.instr, 5]):
            last[t].length += operand[t].length
        return True

    cdef int _append(self, Slot* slot, const Place* operand, i64 reads) except -1:
        """Add a segment to the chain pending in a slot."""
        cdef i64 t, at = self.n_segments
        if at == self.segment_room:
            self.segment_room = 2 * self.segment_room + 1024
            self.places = <Place*>realloc(self.places, self.segment_room * self.most_reads * sizeof(Place))
            self.follows = <i64*>realloc(self.follows, self.segment_room * sizeof(i64))
            if self.places == NULL or self.follows == NULL:
                raise MemoryError
        for t in range(reads):
            self.places[at * self.most_reads + t] = operand[t]
        self.follows[at] = -1
        if slot.seg_last >= 0:
            self.follows[slot.seg_last] = at
        else:
            slot.seg_first = at
        slot.seg_last = at
        self.n_segments += 1
        return 0
