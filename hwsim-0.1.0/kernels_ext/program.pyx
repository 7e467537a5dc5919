"""Compiled parts of hwsim.program: instances of frozen dataclasses, and the rows of a kernel's tables.

It knows attributes of the objects that a program is made of, and the columns of hwsim.program.flat; no device, no time.
"""

from cpython.bytearray cimport PyByteArray_FromStringAndSize
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject, PyTypeObject, Py_TYPE
from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc

import numpy as np


cdef extern from "Python.h":
    object PyType_GenericAlloc(PyTypeObject *type, Py_ssize_t items)


cdef enum:
    NODE_INSTR = 0
    NODE_LOOP = 1
    NODE_END = 2
    NODE_ADVANCE = 3
    TILE_GLOBAL = 0
    TILE_LOCAL = 1
    TILE_COLUMNS = 9


cdef class Maker:
    """Makes instances of a frozen dataclass with slots, as its `__new__`: called with the class and the
    values of fields.

    members: the descriptors of the slots; names, defaults: of the fields; missing: the default of one that has none.
    """

    cdef tuple members, names, defaults
    cdef object missing

    def __init__(self, tuple members, tuple names, tuple defaults, object missing):
        self.members, self.names, self.defaults, self.missing = members, names, defaults, missing

    def __call__(self, *args, **named):
        cdef Py_ssize_t i, given = len(args) - 1, left = len(named)
        cdef PyObject *value
        cdef PyObject *member
        if given > len(self.members):
            raise TypeError(f"{args[0].__name__} takes {len(self.members)} arguments; got {given}")
        made = PyType_GenericAlloc(<PyTypeObject *><PyObject *>args[0], 0)
        for i in range(len(self.members)):
            if i < given:
                value = <PyObject *>args[i + 1]
            else:
                value = PyDict_GetItem(named, self.names[i]) if left else NULL
                if value != NULL:
                    left -= 1
                elif self.defaults[i] is self.missing:
                    raise TypeError(f"{args[0].__name__} needs {self.names[i]}")
                else:
                    value = <PyObject *>self.defaults[i]
            member = <PyObject *>self.members[i]
            (<PyTypeObject *>Py_TYPE(<object>member)).tp_descr_set(<object>member, made, <object>value)
        if left:
            raise TypeError(f"{args[0].__name__} got an argument twice or one that it has not, of {', '.join(named)}")
        return made


cdef class Rows:
    """A table that grows."""

    cdef int64_t *data
    cdef Py_ssize_t used, room

    def __dealloc__(self):
        free(self.data)

    cdef int64_t *more(self, Py_ssize_t count) except NULL:
        """Room for `count` numbers more, valid until the next call."""
        cdef int64_t *grown
        if self.used + count > self.room:
            self.room = 2 * self.room + count + 64
            grown = <int64_t *>realloc(self.data, self.room * sizeof(int64_t))
            if grown == NULL:
                raise MemoryError("no memory for the tables of a kernel")
            self.data = grown
        self.used += count
        return self.data + self.used - count

    cdef object table(self, Py_ssize_t columns):
        """The rows as an array."""
        memory = PyByteArray_FromStringAndSize(<char *>self.data, self.used * sizeof(int64_t))
        return np.ndarray((self.used // columns, columns), np.int64, memory)


cdef class Flattener:
    """The tables of one kernel, stream by stream; see hwsim.program.flat for the columns.

    kinds: the classes of instructions, loops and tiles in buffers. opcodes, engines, arrays, buffers, semaphores:
    numbers by name. column_major: arrays whose tiles have rows and columns exchanged. reader: a FormReader, or None.
    """

    cdef object instr_class, loop_class, local_class, reader, form_key, form_of_tile
    cdef dict opcodes, engines, arrays, buffers, semaphores, variables, affines, places, tiles, tile_forms
    cdef frozenset column_major
    cdef Rows node, derived, stream_rows, instr, tile, affine, term, sync, zero_list, zero_variable
    cdef Py_ssize_t instrs, first_node
    cdef readonly bint skipped
    cdef readonly dict forms
    cdef readonly list kinds, firsts, examples

    def __init__(self, tuple classes, dict opcodes, dict engines, dict arrays, dict buffers, dict semaphores,
                 frozenset column_major, reader):
        self.instr_class, self.loop_class, self.local_class = classes
        self.opcodes, self.engines, self.arrays = opcodes, engines, arrays
        self.buffers, self.semaphores, self.column_major, self.reader = buffers, semaphores, column_major, reader
        if reader is not None:
            self.form_key, self.form_of_tile, self.tile_forms = reader.key, reader.tile_form, {}
        self.node, self.derived, self.stream_rows, self.instr = Rows(), Rows(), Rows(), Rows()
        self.tile, self.affine, self.term, self.sync = Rows(), Rows(), Rows(), Rows()
        self.zero_list, self.zero_variable = Rows(), Rows()
        self.forms, self.kinds, self.firsts, self.examples = {}, [], [], []

    @property
    def count(self):
        """Instructions so far."""
        return self.instrs

    def tables(self):
        """All tables, by name."""
        return {
            "node": self.node.table(4), "derived": self.derived.table(4), "stream": self.stream_rows.table(5),
            "instr": self.instr.table(12), "tile": self.tile.table(TILE_COLUMNS), "affine": self.affine.table(3),
            "term": self.term.table(2), "sync": self.sync.table(2), "zero_list": self.zero_list.table(2),
            "zero_variable": self.zero_variable.table(1),
        }

    def stream(self, tuple body, tuple derived, str core):
        """Add a stream: its nodes and its derived variables. core: the variable that comes first."""
        cdef Py_ssize_t first_derived = self.derived.used // 4
        cdef int64_t *row
        cdef int64_t variable, affine, divisor, is_remainder
        self.variables, self.affines, self.places, self.tiles = {core: 0}, {}, {}, {}
        self.first_node = self.node.used // 4
        self.nodes(body)
        for one in derived:
            variable, affine, divisor = self.variable(one.name), self.affine_of(one.of), one.divisor
            is_remainder = one.part == "remainder"
            row = self.derived.more(4)
            row[0], row[1], row[2], row[3] = variable, affine, divisor, is_remainder
        row = self.stream_rows.more(5)
        row[0], row[1], row[2] = self.first_node, self.node.used // 4 - self.first_node, len(self.variables)
        row[3], row[4] = first_derived, len(derived)

    cdef int64_t variable(self, name) except -1:
        known = self.variables.get(name)
        if known is None:
            known = self.variables[name] = len(self.variables)
        return known

    cdef int nodes(self, tuple body) except -1:
        """Add the nodes of a body."""
        cdef int64_t *row
        cdef int64_t index, count
        for node in body:
            kind = type(node)
            if kind is self.instr_class:
                index = self.instrs
                self.instruction(node)
                row = self.node.more(4)
                row[0], row[1], row[2], row[3] = NODE_INSTR, index, 0, 0
            elif kind is self.loop_class:
                self.loop(node)
            else:
                index, count = self.variable(node.counter), node.by
                row = self.node.more(4)
                row[0], row[1], row[2], row[3] = NODE_ADVANCE, index, count, 0
        return 0

    cdef int loop(self, loop) except -1:
        cdef int64_t count = loop.count, index
        cdef int64_t *row
        cdef Py_ssize_t start
        if count == 0:
            self.skipped = True
            return 0
        index, start = self.variable(loop.name), self.node.used
        row = self.node.more(4)
        row[0], row[1], row[2], row[3] = NODE_LOOP, index, count, 0
        self.nodes(loop.body)
        row = self.node.more(4)
        row[0], row[1], row[2], row[3] = NODE_END, index, count, start // 4 + 1 - self.first_node
        self.node.data[start + 3] = self.node.used // 4 - self.first_node
        return 0

    cdef int instruction(self, instr) except -1:
        """Add a row of an instruction, and those of its tiles, waits and signals."""
        cdef tuple writes = instr.writes, reads = instr.reads, waits = instr.waits, signals = instr.signals
        cdef int64_t engine = self.engines[instr.engine], opcode = self.opcodes[instr.opcode]
        cdef int64_t repeat = instr.repeat, scale_exponent = instr.scale_exponent, zero_at = -1
        cdef Py_ssize_t first_tile = self.tile.used // TILE_COLUMNS, first_wait = self.sync.used // 2
        cdef int64_t *row
        cdef list form = None
        if self.reader is not None:
            form = [self.form_key(instr), len(writes)]
        for tile in writes:
            self.add_tile(tile, form)
        for tile in reads:
            self.add_tile(tile, form)
        for one in waits:
            self.add_sync(one)
        for one in signals:
            self.add_sync(one)
        loops = instr.zero_at
        if loops is not None:
            zero_at = self.zero_list.used // 2
            row = self.zero_list.more(2)
            row[0], row[1] = self.zero_variable.used, len(loops)
            for name in loops:
                index = self.variable(name)
                self.zero_variable.more(1)[0] = index
        row = self.instr.more(12)
        row[0], row[1], row[2], row[3] = engine, opcode, repeat, first_tile
        row[4], row[5], row[6], row[7] = len(writes), len(reads), first_wait, len(waits)
        row[8], row[9], row[10], row[11] = first_wait + len(waits), len(signals), zero_at, scale_exponent
        if form is not None:
            key = tuple(form)
            kind = self.forms.setdefault(key, len(self.firsts))
            if kind == len(self.firsts):
                self.firsts.append(self.instrs)
                self.examples.append(instr)
            self.kinds.append(kind)
        self.instrs += 1
        return 0

    cdef int add_sync(self, one) except -1:
        cdef int64_t semaphore = self.semaphores[one.semaphore], count = one.count
        cdef int64_t *row = self.sync.more(2)
        row[0], row[1] = semaphore, count
        return 0

    cdef int add_tile(self, tile, list form) except -1:
        """Add the row of a tile, and its form to that of its instruction; many instructions share a tile."""
        cdef int64_t *row
        cdef Py_ssize_t i, before
        identity = <Py_ssize_t><PyObject *>tile
        if form is not None:
            known = self.tile_forms.get(identity)
            if known is None:
                known = self.tile_forms[identity] = self.form_of_tile(tile)
            form.append(known)
        known = self.tiles.get(identity)
        if known is None:
            self.tiles[identity] = self.tile.used
            return self.new_tile(tile)
        before = known
        row = self.tile.more(TILE_COLUMNS)
        for i in range(TILE_COLUMNS):
            row[i] = self.tile.data[before + i]
        return 0

    cdef int new_tile(self, tile) except -1:
        """Add the row of a tile that the stream has not had yet."""
        cdef int64_t rows = tile.rows, cols = tile.cols, object, affine_row, affine_col, affine_slot, row_in, col_in
        cdef int64_t *row
        if type(tile) is self.local_class:
            object, affine_slot = self.buffers[tile.buffer], self.affine_at(tile.slot)
            row_in, col_in = tile.row, tile.col
            row = self.tile.more(TILE_COLUMNS)
            row[0], row[1], row[2], row[3], row[4], row[5] = TILE_LOCAL, object, rows, cols, -1, -1
            row[6], row[7], row[8] = affine_slot, row_in, col_in
            return 0
        name = tile.array
        affine_row, affine_col, object = self.affine_at(tile.row), self.affine_at(tile.col), self.arrays[name]
        if name in self.column_major:
            rows, cols, affine_row, affine_col = cols, rows, affine_col, affine_row
        row = self.tile.more(TILE_COLUMNS)
        row[0], row[1], row[2], row[3], row[4], row[5] = TILE_GLOBAL, object, rows, cols, affine_row, affine_col
        row[6], row[7], row[8] = -1, 0, 0
        return 0

    cdef int64_t affine_at(self, affine) except -1:
        """The row of an expression; many tiles share one."""
        identity = <Py_ssize_t><PyObject *>affine
        known = self.places.get(identity)
        if known is None:
            known = self.places[identity] = self.affine_of(affine)
        return known

    cdef int64_t affine_of(self, affine) except -1:
        """The row of an expression: in a stream each stands once."""
        cdef tuple terms = affine.terms
        cdef int64_t constant = affine.constant, index, coefficient, made
        cdef int64_t *row
        key = affine.constant, terms
        known = self.affines.get(key)
        if known is not None:
            return known
        made = self.affine.used // 3
        self.affines[key] = made
        row = self.affine.more(3)
        row[0], row[1], row[2] = constant, self.term.used // 2, len(terms)
        for name, factor in terms:
            index, coefficient = self.variable(name), factor
            row = self.term.more(2)
            row[0], row[1] = index, coefficient
        return made
