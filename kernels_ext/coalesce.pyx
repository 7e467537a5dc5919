"""Executes the streams of cores symbolically: what each place holds becomes a value, an expression over arrays.

A value is a matrix that an instruction computes of others, element for element: of regions of global arrays, and of
values. Instructions of other tiles and cores that do the same to other regions of the same arrays give other regions of
the same value, so a kernel has few of them. A copy moves no codes: its target holds the region that its source holds.

Instructions start in any order that queues and semaphores allow. What cores of other groups signal is there: they are
executed before (hwsim.program.peers). The module knows the tables of hwsim.program.flat; no codes, no arithmetic, no
device.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

import numpy as np

ctypedef int64_t i64

cdef enum:
    NODE_INSTR = 0
    NODE_LOOP = 1
    NODE_END = 2
    NODE_ADVANCE = 3
    TILE_GLOBAL = 0
    OP_COPY = 0
    OP_MMA = 1
    OP_SYNC = 8
    MAX_TILES = 8
    QUEUE = 1024
    GIVEN = 1 << 30  # more than a core waits for
    # kinds of values
    ARRAY = 0      # a global array at the kernel's begin
    ZERO = 1       # memory that nobody wrote
    RESULT = 2     # of an instruction
    OVERLAY = 3  # several values, beside or over one another
    VALUE_HEAD = 4
    OPERAND = 4
    VALUE_COLUMNS = 36
    ROWS_FIXED = 1  # bits of a tile's axes
    COLS_FIXED = 2

# Value: kind; array, form of the instruction, or first layer; axes (2 bits for each operand: its rows, its columns are
# the same for all regions); number of operands or layers; operands: 8 x (value, row, column, length along the fixed
# axis). The element (i, j) of a value takes the element (row + i, column + j) of an operand, or (row, column) and on
# along a fixed axis. Of a overlay the operands are: rows, columns, layout.
# Layer, store: layout (of a store: array), row, column, rows, columns, value, row and column of the value's element at
# row 0, column 0.
cdef enum:
    LAYER_COLUMNS = 8

cdef struct Held:
    i64 value, row, col

cdef struct Dyn:
    i64 instr
    bint zero
    i64 slot[MAX_TILES]
    i64 row[MAX_TILES]
    i64 col[MAX_TILES]

# What a rectangle of a slot, or of an array that the kernel writes and reads, holds. value_row, value_col: the value's
# element at row 0, column 0 of the layout. begin, end: its first byte, and the byte after its last; bytes: its codes'.
cdef struct Layer:
    i64 layout, row, col, rows, cols, value, value_row, value_col, begin, end, bytes

# Layers in the order in which they were written.
cdef struct Store:
    Layer* layers
    i64 size, room

cdef struct Vector:
    i64* data
    i64 size, room


cdef i64* _more(Vector* v, i64 n) except NULL:
    """Room for n numbers more, valid until the next call."""
    cdef i64* grown
    if v.size + n > v.room:
        grown = <i64*>realloc(v.data, (2 * v.room + n + 1024) * sizeof(i64))
        if grown == NULL:
            raise MemoryError
        v.data, v.room = grown, 2 * v.room + n + 1024
    v.size += n
    return v.data + v.size - n


cdef object _array(Vector* v, i64 columns):
    out = np.empty(v.size, np.int64)
    cdef i64[::1] view = out
    if v.size:
        memcpy(&view[0], v.data, v.size * sizeof(i64))
    return out.reshape(-1, columns)


cdef bint _meet(const Layer* x, const Layer* y):
    """Whether two layers of one layout overlap."""
    return (x.row < y.row + y.rows and y.row < x.row + x.rows and x.col < y.col + y.cols and y.col < x.col + x.cols)


cdef bint _is_within(const Layer* x, const Layer* y):
    """Whether x, of y's layout, lies within y."""
    return (x.row >= y.row and x.row + x.rows <= y.row + y.rows and x.col >= y.col
            and x.col + x.cols <= y.col + y.cols)


cdef bint _overlap(const Layer* x, const Layer* y):
    return _meet(x, y) if x.layout == y.layout else x.begin < y.end and y.begin < x.end


cdef bint _cut(Layer* old, const Layer* new):
    """Take the new layer, of the same layout, off the old one where a rectangle remains."""
    cdef i64 end
    if new.col <= old.col and new.col + new.cols >= old.col + old.cols:
        end = old.row + old.rows
        if new.row <= old.row:
            old.row = new.row + new.rows
        elif new.row + new.rows < end:
            return False
        else:
            end = new.row
        old.rows = end - old.row
        return True
    if new.row <= old.row and new.row + new.rows >= old.row + old.rows:
        end = old.col + old.cols
        if new.col <= old.col:
            old.col = new.col + new.cols
        elif new.col + new.cols < end:
            return False
        else:
            end = new.col
        old.cols = end - old.col
        return True
    return False


cdef bint _joins(Layer* new, const Layer* old):
    """Grow the new layer by the old one where both are regions of one value that make one rectangle."""
    if (old.layout != new.layout or old.value != new.value or old.value_row != new.value_row
            or old.value_col != new.value_col):
        return False
    cdef i64 first, last
    if old.col == new.col and old.cols == new.cols and old.row <= new.row + new.rows and new.row <= old.row + old.rows:
        first, last = min(old.row, new.row), max(old.row + old.rows, new.row + new.rows)
        new.row, new.rows = first, last - first
    elif old.row == new.row and old.rows == new.rows and old.col <= new.col + new.cols \
            and new.col <= old.col + old.cols:
        first, last = min(old.col, new.col), max(old.col + old.cols, new.col + new.cols)
        new.col, new.cols = first, last - first
    else:
        return False
    new.begin, new.end = min(old.begin, new.begin), max(old.end, new.end)
    return True


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
    """One kernel of a program. `run(group, core)` executes one core after another; `tables()` are what they computed.

    The arguments stand in coalesce.pyi.
    """

    cdef i64[:, ::1] instr, tile, affine, term, sync, zero_list, zero_variable
    cdef i64[::1] buffer_slots, semaphore_initial, slot_base
    cdef i64[::1] forms, layouts, widths, code_bytes, axes, is_logged
    cdef object streams
    cdef i64 n_engines, n_slots, n_arrays
    cdef Store* slots
    cdef Store* logs
    cdef Vector values, layers, stores, is_free
    cdef i64 n_values
    cdef i64* buckets       # number of a value + 1, by hash
    cdef i64 n_buckets
    cdef Dyn* queues
    cdef i64* head
    cdef i64* length
    cdef i64* semaphores

    def __cinit__(self, flat, i64 n_engines, *, logged, forms, layouts, widths, code_bytes, axes):
        cdef i64 i
        self.instr, self.tile, self.affine, self.term = flat.instr, flat.tile, flat.affine, flat.term
        self.sync, self.zero_list, self.zero_variable = flat.sync, flat.zero_list, flat.zero_variable
        self.buffer_slots = flat.buffer_slots
        self.semaphore_initial = np.where(flat.semaphore_peers != 0, GIVEN, flat.semaphore_initial)
        self.streams, self.n_engines, self.n_arrays = flat.streams, n_engines, len(logged)
        self.is_logged = np.asarray(logged, np.int64)
        self.forms, self.layouts = np.asarray(forms, np.int64), np.asarray(layouts, np.int64)
        self.widths, self.code_bytes = np.asarray(widths, np.int64), np.asarray(code_bytes, np.int64)
        self.axes = np.asarray(axes, np.int64)
        for i in range(self.instr.shape[0]):
            if self.instr[i, 5] >= MAX_TILES:
                raise ValueError(f"an instruction reads {self.instr[i, 5]} tiles; at most {MAX_TILES - 1} are allowed")
        base = np.concatenate([[0], np.cumsum(np.asarray(flat.buffer_slots))]).astype(np.int64)
        self.slot_base, self.n_slots = base, int(base[len(base) - 1])
        self.slots = <Store*>calloc(self.n_slots + 1, sizeof(Store))
        self.logs = <Store*>calloc(self.n_arrays + 1, sizeof(Store))
        self.queues = <Dyn*>malloc(n_engines * QUEUE * sizeof(Dyn))
        self.head = <i64*>calloc(n_engines, sizeof(i64))
        self.length = <i64*>calloc(n_engines, sizeof(i64))
        self.semaphores = <i64*>calloc(len(flat.semaphore_initial) + 1, sizeof(i64))
        self.n_buckets = 1024
        self.buckets = <i64*>calloc(self.n_buckets, sizeof(i64))
        if not (self.slots and self.logs and self.queues and self.head and self.length and self.semaphores
                and self.buckets):
            raise MemoryError
        cdef i64 row[VALUE_COLUMNS]
        for i in range(self.n_arrays):
            memset(row, 0, sizeof(row))
            row[1] = i
            self._value(row, False)
        memset(row, 0, sizeof(row))
        row[0] = ZERO
        self._value(row, True)

    def __dealloc__(self):
        cdef i64 i
        for i in range(self.n_slots if self.slots else 0):
            free(self.slots[i].layers)
        for i in range(self.n_arrays if self.logs else 0):
            free(self.logs[i].layers)
        free(self.slots)
        free(self.logs)
        free(self.queues)
        free(self.head)
        free(self.length)
        free(self.semaphores)
        free(self.buckets)
        free(self.values.data)
        free(self.layers.data)
        free(self.stores.data)
        free(self.is_free.data)

    def run(self, int group, i64 core):
        """Execute core `core` of group `group`.

        Raises RuntimeError when nothing can go on (the program deadlocks).
        """
        cdef i64 i
        cdef _Walker walker
        for i in range(self.n_slots):
            self.slots[i].size = 0
        for i in range(self.n_engines):
            self.head[i] = self.length[i] = 0
        for i in range(self.semaphore_initial.shape[0]):
            self.semaphores[i] = self.semaphore_initial[i]
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

    def tables(self):
        """(values, layers, stores), int64 arrays."""
        cdef i64 i, j
        cdef i64* row
        cdef Layer* layer
        for i in range(self.n_arrays):
            for j in range(self.logs[i].size):
                layer = &self.logs[i].layers[j]
                row = _more(&self.stores, LAYER_COLUMNS)
                row[0], row[1], row[2], row[3], row[4] = i, layer.row, layer.col, layer.rows, layer.cols
                row[5], row[6], row[7] = layer.value, layer.value_row, layer.value_col
            self.logs[i].size = 0
        return (_array(&self.values, VALUE_COLUMNS), _array(&self.layers, LAYER_COLUMNS),
                _array(&self.stores, LAYER_COLUMNS))

    cdef bint _issue(self, _Walker walker) except -1:
        """Put the stream's next instruction into its engine's queue; False when it cannot go on."""
        cdef i64 index = walker.next_instr()
        if index < 0:
            return False
        cdef i64 engine = self.instr[index, 0]
        if self.length[engine] == QUEUE:
            return False
        cdef Dyn* dyn = &self.queues[engine * QUEUE + (self.head[engine] + self.length[engine]) % QUEUE]
        cdef i64 first = self.instr[index, 3], count = self.instr[index, 4] + self.instr[index, 5], t, i, slots
        dyn.instr = index
        for t in range(count):
            if self.tile[first + t, 0] == TILE_GLOBAL:
                dyn.row[t] = walker.value(self.tile[first + t, 4])
                dyn.col[t] = walker.value(self.tile[first + t, 5])
                dyn.slot[t] = 0
            else:
                slots = self.buffer_slots[self.tile[first + t, 1]]
                dyn.slot[t] = walker.value(self.tile[first + t, 6]) % slots
                if dyn.slot[t] < 0:  # C's remainder has the sign of what is divided
                    dyn.slot[t] += slots
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

    cdef i64 _value(self, const i64* row, bint is_free) except -1:
        """The number of the value with this row, which is appended where it is new. is_free: all elements are equal."""
        cdef i64 count = VALUE_HEAD + OPERAND * (row[3] if row[0] == RESULT else 1), i, at, number
        cdef unsigned long long mixed = 1469598103934665603u
        for i in range(count):
            mixed = (mixed ^ <unsigned long long>row[i]) * 1099511628211u
            mixed ^= mixed >> 29
        at = <i64>(mixed & <unsigned long long>(self.n_buckets - 1))
        while self.buckets[at]:
            number = self.buckets[at] - 1
            if memcmp(self.values.data + number * VALUE_COLUMNS, row, count * sizeof(i64)) == 0:
                return number
            at = (at + 1) & (self.n_buckets - 1)
        number = self._append(row, is_free)
        self.buckets[at] = number + 1
        if 2 * self.n_values > self.n_buckets:
            self._rehash()
        return number

    cdef i64 _append(self, const i64* row, bint is_free) except -1:
        memcpy(_more(&self.values, VALUE_COLUMNS), row, VALUE_COLUMNS * sizeof(i64))
        _more(&self.is_free, 1)[0] = is_free
        self.n_values += 1
        return self.n_values - 1

    cdef int _rehash(self) except -1:
        cdef i64 size = 4 * self.n_buckets, number, i, at, count
        cdef i64* buckets = <i64*>calloc(size, sizeof(i64))
        cdef i64* row
        cdef unsigned long long mixed
        if buckets == NULL:
            raise MemoryError
        for number in range(self.n_values):
            row = self.values.data + number * VALUE_COLUMNS
            if row[0] == OVERLAY:
                continue
            count = VALUE_HEAD + OPERAND * (row[3] if row[0] == RESULT else 1)
            mixed = 1469598103934665603u
            for i in range(count):
                mixed = (mixed ^ <unsigned long long>row[i]) * 1099511628211u
                mixed ^= mixed >> 29
            at = <i64>(mixed & <unsigned long long>(size - 1))
            while buckets[at]:
                at = (at + 1) & (size - 1)
            buckets[at] = number + 1
        free(self.buckets)
        self.buckets, self.n_buckets = buckets, size
        return 0

    cdef Layer _layer(self, Dyn* dyn, i64 t):
        """The rectangle of a tile, without a value."""
        cdef Layer layer
        cdef i64 row = self.instr[dyn.instr, 3] + t, width = self.widths[row], size = self.code_bytes[row]
        memset(&layer, 0, sizeof(layer))
        layer.layout, layer.row, layer.col = self.layouts[row], dyn.row[t], dyn.col[t]
        layer.rows, layer.cols = self.tile[row, 2], self.tile[row, 3]
        layer.begin = (layer.row * width + layer.col) * size
        layer.end = ((layer.row + layer.rows - 1) * width + layer.col + layer.cols) * size
        layer.bytes = layer.rows * layer.cols * size
        return layer

    cdef Store* _store(self, Dyn* dyn, i64 t):
        """The memory that tile `t` is a part of; NULL for an array that the kernel does not both write and read."""
        cdef i64 row = self.instr[dyn.instr, 3] + t
        if self.tile[row, 0] == TILE_GLOBAL:
            return &self.logs[self.tile[row, 1]] if self.is_logged[self.tile[row, 1]] else NULL
        return &self.slots[self.slot_base[self.tile[row, 1]] + dyn.slot[t]]

    cdef Held _read(self, Dyn* dyn, i64 t) except *:
        """The region of a value that tile `t` holds now."""
        cdef i64 row = self.instr[dyn.instr, 3] + t, i
        cdef bint is_global = self.tile[row, 0] == TILE_GLOBAL
        cdef Held held
        cdef Store* store = self._store(dyn, t)
        cdef Layer wanted
        cdef Layer* layer
        if store != NULL:
            wanted = self._layer(dyn, t)
            i = store.size - 1
            while i >= 0:
                layer = &store.layers[i]
                if _overlap(layer, &wanted):
                    if layer.layout != wanted.layout or not _is_within(&wanted, layer):
                        return self._overlay(store, &wanted, self.tile[row, 1] if is_global else self.n_arrays,
                                             not is_global)
                    held.value = layer.value
                    held.row, held.col = wanted.row + layer.value_row, wanted.col + layer.value_col
                    return held
                i -= 1
        if is_global:
            held.value, held.row, held.col = self.tile[row, 1], dyn.row[t], dyn.col[t]
        else:
            held.value, held.row, held.col = self.n_arrays, 0, 0
        return held

    cdef Held _overlay(self, Store* store, const Layer* wanted, i64 below, bint kept) except *:
        """A value of its own for a rectangle that several layers cover, or one of another layout. below: the value
        where there are none. kept: whether the memory holds it from now on as one layer.
        """
        cdef i64 row[VALUE_COLUMNS]
        cdef i64* out
        cdef i64 i, first = self.layers.size // LAYER_COLUMNS, count = 1
        cdef Layer* layer
        cdef Layer made
        cdef Held held
        out = _more(&self.layers, LAYER_COLUMNS)
        out[0], out[1], out[2], out[3], out[4] = wanted.layout, wanted.row, wanted.col, wanted.rows, wanted.cols
        out[5], out[6], out[7] = below, 0, 0
        for i in range(store.size):
            layer = &store.layers[i]
            if _overlap(layer, wanted):
                out = _more(&self.layers, LAYER_COLUMNS)
                out[0], out[1], out[2], out[3], out[4] = layer.layout, layer.row, layer.col, layer.rows, layer.cols
                out[5], out[6], out[7] = layer.value, layer.value_row, layer.value_col
                count += 1
        memset(row, 0, sizeof(row))
        row[0], row[1], row[3] = OVERLAY, first, count
        held.value, held.row, held.col = self._append(row, False), 0, 0
        if kept:
            made = wanted[0]
            made.value, made.value_row, made.value_col = held.value, -made.row, -made.col
            self._put(store, made)
        return held

    cdef int _write(self, Dyn* dyn, i64 t, Held held) except -1:
        """Tile `t` holds this region from now on."""
        cdef i64 row = self.instr[dyn.instr, 3] + t
        cdef Store* store = self._store(dyn, t)
        cdef Layer layer = self._layer(dyn, t)
        cdef i64* out
        layer.value = held.value
        if not self.is_free.data[held.value]:
            layer.value_row, layer.value_col = held.row - layer.row, held.col - layer.col
        if store != NULL:
            return self._put(store, layer)
        out = _more(&self.stores, LAYER_COLUMNS)
        out[0], out[1], out[2], out[3], out[4] = self.tile[row, 1], layer.row, layer.col, layer.rows, layer.cols
        out[5], out[6], out[7] = layer.value, layer.value_row, layer.value_col
        return 0

    cdef int _put(self, Store* store, Layer new) except -1:
        """Append a layer; what it covers goes, and what it continues becomes one with it."""
        cdef i64 i, j, kept = 0
        cdef Layer* old
        cdef Layer* grown
        cdef bint is_free
        for i in range(store.size):
            old = &store.layers[i]
            if old.layout == new.layout:
                if _is_within(old, &new):
                    continue
                if _meet(old, &new):
                    _cut(old, &new)
            elif old.begin >= new.begin and old.end <= new.end and new.end - new.begin == new.bytes:
                continue
            store.layers[kept] = old[0]
            kept += 1
        store.size = kept
        i = store.size - 1
        while i >= 0:
            old = &store.layers[i]
            is_free = True
            j = i + 1
            if old.layout == new.layout and old.value == new.value:
                while j < store.size and is_free:  # nothing newer lies over the old one
                    is_free = not _overlap(&store.layers[j], old)
                    j += 1
                if is_free and _joins(&new, old):
                    for j in range(i, store.size - 1):
                        store.layers[j] = store.layers[j + 1]
                    store.size -= 1
                    i = store.size
            i -= 1
        if store.size == store.room:
            grown = <Layer*>realloc(store.layers, (2 * store.room + 4) * sizeof(Layer))
            if grown == NULL:
                raise MemoryError
            store.layers, store.room = grown, 2 * store.room + 4
        store.layers[store.size] = new
        store.size += 1
        return 0

    cdef int _execute(self, Dyn* dyn) except -1:
        cdef i64 opcode = self.instr[dyn.instr, 1]
        cdef Held held, last
        if opcode == OP_SYNC:
            return 0
        cdef i64 turns = self.instr[dyn.instr, 2]
        last.value = -1
        while turns > 0:
            turns -= 1
            if opcode == OP_COPY:
                held = self._read(dyn, 1)
            else:
                held = self._result(dyn, opcode == OP_MMA and not dyn.zero)
            if held.value == last.value and held.row == last.row and held.col == last.col:
                break  # further repetitions leave the same
            self._write(dyn, 0, held)
            last = held
        return 0

    cdef Held _result(self, Dyn* dyn, bint in_place) except *:
        """The region of the value that an instruction computes. in_place: its target is an operand, the last one."""
        cdef i64 row[VALUE_COLUMNS]
        cdef i64 first = self.instr[dyn.instr, 3], reads = self.instr[dyn.instr, 5]
        cdef i64 count = reads + in_place, t, at, axes
        cdef Held operands[MAX_TILES]
        cdef Held held
        cdef bint is_free = True, has_row = False, has_col = False
        cdef i64* out
        held.value = held.row = held.col = 0
        for t in range(count):
            at = t + 1 if t < reads else 0
            operands[t] = self._read(dyn, at)
            axes = self.axes[first + at]
            if self.is_free.data[operands[t].value]:
                operands[t].row = operands[t].col = 0
                continue
            is_free = False
            if not has_row and not axes & ROWS_FIXED:
                held.row, has_row = operands[t].row, True
            if not has_col and not axes & COLS_FIXED:
                held.col, has_col = operands[t].col, True
        memset(row, 0, sizeof(row))
        row[0], row[1], row[3] = RESULT, self.forms[dyn.instr], count
        for t in range(count):
            at = first + (t + 1 if t < reads else 0)
            axes = self.axes[at]
            row[2] |= axes << (2 * t)
            out = row + VALUE_HEAD + OPERAND * t
            out[0] = operands[t].value
            if not self.is_free.data[operands[t].value]:
                out[1] = operands[t].row if axes & ROWS_FIXED else operands[t].row - held.row
                out[2] = operands[t].col if axes & COLS_FIXED else operands[t].col - held.col
            if axes:
                out[3] = self.tile[at, 2] if axes & ROWS_FIXED else self.tile[at, 3]
        held.value = self._value(row, is_free)
        return held
