"""The timing engine: kernels as tables in, ticks out. It knows neither devices nor what is computed."""

from cpython.buffer cimport PyBUF_CONTIG_RO, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t

import numpy as np

from hwsim.errors import UnsupportedError


cdef extern from "hw_engine.h":
    enum:
        HW_TICKS, HW_RATE_BITS, HW_SHARED, HW_COUNTERS, HW_FIRST_SEMAPHORE
        HW_OK, HW_NO_MEMORY, HW_DEADLOCK, HW_LEAK, HW_TOO_LONG, HW_STOPPED
        HW_L2, HW_HBM
        HW_CAUSE_NONE, HW_CAUSE_EMPTY, HW_CAUSE_QUEUE_FULL, HW_CAUSE_IN_FLIGHT
    ctypedef struct hw_node:
        pass
    ctypedef struct hw_tile:
        pass
    ctypedef struct hw_affine:
        pass
    ctypedef struct hw_term:
        pass
    ctypedef struct hw_derived:
        pass
    ctypedef struct hw_sync:
        pass
    ctypedef struct hw_instr:
        pass
    ctypedef struct hw_cost:
        pass
    ctypedef struct hw_engine_model:
        pass
    ctypedef struct hw_window:
        pass
    ctypedef struct hw_group:
        int64_t count, streams
    ctypedef struct hw_stream:
        pass
    ctypedef struct hw_array:
        pass
    ctypedef struct hw_row:
        pass
    ctypedef struct hw_l2:
        pass
    ctypedef struct hw_kernel:
        const hw_instr *instr
        const hw_cost *cost
        const hw_tile *tile
        const hw_affine *affine
        const hw_term *term
        const hw_derived *derived
        const hw_sync *sync
        const hw_node *node
        const hw_stream *stream
        const hw_group *group
        const hw_engine_model *engine
        const hw_window *window
        const int64_t *semaphore_initial
        const int64_t *semaphore_pieces
        const int64_t *semaphore_peers
        int64_t instrs, streams, groups, engines, semaphores, windows
        int64_t miss_ticks
        hw_l2 *l2
        int64_t *capacity
        int has_hbm
        int64_t deferred_limit, deferred
        int64_t *executed
        int64_t *account
        int64_t *stalled
        int64_t *group_end
        int64_t *semaphore
        int64_t *blocked
        int64_t *counter
        int64_t end
        hw_row *row
        int64_t row_limit, rows
        int64_t row_group, row_from, row_to
        int (*row_full)(hw_kernel *) noexcept nogil
        void *row_taker
        int (*interrupted)(hw_kernel *) noexcept nogil
        void *interruption
        int64_t lost, started
    hw_l2 *hw_l2_new(int64_t capacity_bytes, int random, const hw_array *arrays, int64_t count)
    void hw_l2_free(hw_l2 *l2)
    int64_t hw_l2_flush(hw_l2 *l2)
    int hw_run_kernel(hw_kernel *kernel) nogil
    ctypedef struct hw_order:
        const hw_instr *instr
        const hw_tile *tile
        const hw_affine *affine
        const hw_term *term
        const hw_derived *derived
        const hw_sync *sync
        const hw_node *node
        const hw_stream *stream
        const int64_t *semaphore_initial
        const int64_t *semaphore_peers
        const int64_t *queue_depth
        const int64_t *buffer_slots
        const int64_t *first_slot
        int64_t streams, engines, semaphores, buffers, arrays, core
        int64_t period, budget, most_slots
    int hw_in_order(const hw_order *order) nogil
    ctypedef struct hw_places:
        const hw_instr *instr
        const hw_tile *tile
        const hw_affine *affine
        const hw_term *term
        const hw_derived *derived
        const hw_sync *sync
        const hw_node *node
        const hw_stream *stream
        const int64_t *zero_list
        const int64_t *zero_variable
        const int64_t *extent
        int64_t streams, first_core, cores, zeroing, period
        int64_t *sums
    int hw_check_places(const hw_places *places) nogil


cdef int64_t HW_LAST = (<int64_t>1 << 62)
TICKS_PER_CYCLE = HW_TICKS
RATE_BITS = HW_RATE_BITS
FIRST_SEMAPHORE = HW_FIRST_SEMAPHORE
OK, DEADLOCK, LEAK, TOO_LONG = HW_OK, HW_DEADLOCK, HW_LEAK, HW_TOO_LONG
CAUSE_NONE, CAUSE_EMPTY = HW_CAUSE_NONE, HW_CAUSE_EMPTY
CAUSE_QUEUE_FULL, CAUSE_IN_FLIGHT = HW_CAUSE_QUEUE_FULL, HW_CAUSE_IN_FLIGHT
COLUMNS = {
    "instr": 12, "cost": 13, "tile": 9, "affine": 3, "term": 2, "derived": 4, "sync": 2, "node": 4,
    "stream": 5, "group": 4, "engine": 3, "window": 1, "semaphore_initial": 1,
    "semaphore_pieces": 1, "semaphore_peers": 1,
}
ORDER_COLUMNS = {name: columns for name, columns in COLUMNS.items()
                 if name not in ("cost", "group", "engine", "window", "semaphore_pieces")} | {
    "queue_depth": 1, "buffer_slots": 1, "first_slot": 1}
PLACE_COLUMNS = {name: columns for name, columns in ORDER_COLUMNS.items()
                 if name not in ("semaphore_initial", "semaphore_peers", "queue_depth", "buffer_slots",
                                 "first_slot")} | {
    "zero_list": 2, "zero_variable": 1, "extent": 2}
ROW_COLUMNS = ("group", "engine", "instr", "issue", "start", "free", "end", "row", "col", "slot", "cause", "number",
               "signaller")


cdef const int64_t *address(object table) except NULL:
    """The first element of a checked table, valid while the table lives; an empty one has a row, never read."""
    cdef Py_buffer buffer
    PyObject_GetBuffer(table, &buffer, PyBUF_CONTIG_RO)
    cdef const int64_t *first = <const int64_t *>buffer.buf
    PyBuffer_Release(&buffer)
    return first


cdef class _RowTaker:
    """Hands full blocks of trace rows to a Python function; what that raises stops the engine."""

    cdef object take, rows, error

    def __cinit__(self, take, rows):
        self.take, self.rows = take, rows


cdef int _row_full(hw_kernel *k) noexcept with gil:
    taker = <_RowTaker>k.row_taker
    try:
        taker.take(taker.rows[:k.rows])
    except BaseException as error:
        taker.error = error
        return 1
    return 0


cdef class _Interruption:
    """What a signal's handler raised, as Ctrl-C does, while the engine ran."""

    cdef object error


cdef int _interrupted(hw_kernel *k) noexcept with gil:
    try:
        PyErr_CheckSignals()
    except BaseException as error:
        (<_Interruption>k.interruption).error = error
        return 1
    return 0


cdef class Machine:
    """What kernels of one program share: rates, and an L2 that keeps its contents from one kernel to the next.

    l2_capacity: bytes, 0 for no L2. l2_rate, hbm_rate: bytes per tick with RATE_BITS fraction bits, 0 for no
    limit. has_hbm: whether HBM traffic is counted. arrays: int64 (n, 5): rows, columns, bits per element;
    -1, 0; or of a view the array that it shows and bytes of each line of that.
    miss_ticks: how much later than a hit a read completes that HBM has a part in. deferred_bytes: at most so many that
    leave L2 dirty wait until HBM is idle (0: none; HBM writes them during the transfer that pushes them out).
    l2_random: what leaves L2 is drawn, always in the same way, not the least recently used.
    """

    cdef hw_l2 *l2
    cdef int64_t l2_rate, hbm_rate, miss_ticks, deferred_limit, deferred
    cdef int has_hbm
    cdef object arrays

    def __cinit__(self, int64_t l2_capacity, int64_t l2_rate, int64_t hbm_rate, bint has_hbm, arrays,
                  int64_t miss_ticks=0, int64_t deferred_bytes=0, bint l2_random=False):
        if not 0 <= deferred_bytes < 1 << 30:
            raise ValueError("timing engine: deferred_bytes below 2^30")
        self.deferred_limit = deferred_bytes << HW_RATE_BITS
        self.l2_rate, self.hbm_rate, self.has_hbm, self.miss_ticks = l2_rate, hbm_rate, has_hbm, miss_ticks
        self.arrays = _table("arrays", arrays, 5)
        rows, row_bits = self.arrays[:, 0], self.arrays[:, 1] * self.arrays[:, 2]
        if len(arrays) > 1 << 12 or (rows >> 33).any() or (row_bits >> 37).any():
            raise UnsupportedError("timing engine: at most 4096 arrays of at most 2^33 rows and 2^34 bytes a row")
        views, shown = self.arrays[:, 3] >= 0, self.arrays[self.arrays[:, 3] >= 0, 3]
        is_too_large = (rows[shown] >> 30).any() or (self.arrays[:, 4] >> 26).any()
        if (shown >= len(arrays)).any() or views[shown].any() or is_too_large:
            raise UnsupportedError(
                "timing engine: a view is of an array of the program, of at most 2^30 rows and 2^26 bytes a row")
        if l2_capacity:
            self.l2 = hw_l2_new(l2_capacity, l2_random, <const hw_array *>address(self.arrays), len(self.arrays))
            if self.l2 == NULL:
                raise MemoryError("timing engine: no memory for the L2 model")

    def __dealloc__(self):
        hw_l2_free(self.l2)

    def flush(self):
        """Write back what is dirty in L2; returns the bytes."""
        return hw_l2_flush(self.l2) if self.l2 != NULL else 0

    @property
    def waiting(self):
        """Bytes that have left L2 and that HBM has not written yet."""
        return self.deferred >> HW_RATE_BITS

    def run(self, tables, int64_t trace, take=None, int64_t group=-1, int64_t first=0, int64_t last=HW_LAST):
        """Time one kernel.

        tables: mapping of the names in COLUMNS to int64 arrays (columns as in hw_engine.h). trace: most rows
        kept; with `take`, whenever there are so many it is called with them (a view, written again after) and
        they are not in what is returned. group, first, last: rows of this group alone (-1: all), that end at tick
        `first` or later and start before `last`. Returns a dict: status (OK,
        DEADLOCK, LEAK, TOO_LONG), end (ticks), executed (instrs), account (groups, engines, FIRST_SEMAPHORE
        + semaphores: busy, empty, done, queue full, in flight, then each semaphore; ticks), stalled
        (streams, engines: ticks that a stream waited for room in a queue), group_end (groups; ticks), semaphore
        (groups, semaphores), blocked (groups, engines, 2: instruction that waits or -1, its semaphore), counters
        (L2 read, L2 written, HBM read, HBM written; bytes), rows (n, ROW_COLUMNS), lost (rows beyond `trace`), started
        (instructions: their numbers are 0 to started - 1). Raises MemoryError, and what `take` or a handler of signals
        raises.
        """
        cdef hw_kernel k
        cdef int status
        cdef _RowTaker taker = None
        cdef _Interruption interruption = _Interruption()
        checked = {name: _table(name, tables[name], columns) for name, columns in COLUMNS.items()}
        instrs, streams, groups, engines, semaphores = (
            len(tables[name]) for name in ("instr", "stream", "group", "engine", "semaphore_initial"))
        executed = np.zeros(max(instrs, 1), np.int64)
        account = np.zeros((groups, engines, FIRST_SEMAPHORE + semaphores), np.int64)
        stalled = np.zeros((max(streams, 1), max(engines, 1)), np.int64)
        group_end = np.zeros(max(groups, 1), np.int64)
        semaphore = np.zeros(max(groups * semaphores, 1), np.int64)
        blocked = np.zeros((groups, engines, 2), np.int64)
        rows = np.zeros((max(trace, 1), len(ROW_COLUMNS)), np.int64)
        if groups == 0 or engines == 0:
            raise ValueError("timing engine: a kernel needs 1 to 65535 cores in a group, and the device engines")
        k.group = <const hw_group *>address(checked["group"])
        for i in range(groups):  # not by NumPy: that takes as long as a short kernel
            if k.group[i].count >> 16:
                raise ValueError("timing engine: a kernel needs 1 to 65535 cores in a group, and the device engines")
            if engines > 64 or k.group[i].streams > 64:
                raise ValueError("timing engine: at most 64 engines and 64 streams per core")

        k.instr = <const hw_instr *>address(checked["instr"])
        k.cost = <const hw_cost *>address(checked["cost"])
        k.tile = <const hw_tile *>address(checked["tile"])
        k.affine = <const hw_affine *>address(checked["affine"])
        k.term = <const hw_term *>address(checked["term"])
        k.derived = <const hw_derived *>address(checked["derived"])
        k.sync = <const hw_sync *>address(checked["sync"])
        k.node = <const hw_node *>address(checked["node"])
        k.stream = <const hw_stream *>address(checked["stream"])
        k.engine = <const hw_engine_model *>address(checked["engine"])
        k.window = <const hw_window *>address(checked["window"])
        k.windows, k.miss_ticks = len(tables["window"]), self.miss_ticks
        k.semaphore_initial = address(checked["semaphore_initial"])
        k.semaphore_pieces = address(checked["semaphore_pieces"])
        k.semaphore_peers = address(checked["semaphore_peers"])
        k.instrs, k.streams, k.groups, k.engines, k.semaphores = instrs, streams, groups, engines, semaphores
        k.l2, k.has_hbm = self.l2, self.has_hbm
        k.capacity[HW_L2] = self.l2_rate if self.l2 != NULL else 0
        k.capacity[HW_HBM] = self.hbm_rate
        k.deferred_limit, k.deferred = self.deferred_limit, self.deferred
        k.executed, k.account = <int64_t *>address(executed), <int64_t *>address(account)
        k.stalled = <int64_t *>address(stalled)
        k.group_end, k.semaphore = <int64_t *>address(group_end), <int64_t *>address(semaphore)
        k.blocked = <int64_t *>address(blocked)
        for i in range(HW_COUNTERS):
            k.counter[i] = 0
        k.end, k.row, k.row_limit, k.rows = 0, <hw_row *>address(rows), trace, 0
        k.row_group, k.row_from, k.row_to, k.lost, k.started = group, first, last, 0, 0
        k.row_full, k.row_taker = NULL, NULL
        if take is not None:
            taker = _RowTaker(take, rows)
            k.row_full, k.row_taker = _row_full, <void *>taker
        k.interrupted, k.interruption = _interrupted, <void *>interruption
        with nogil:
            status = hw_run_kernel(&k)
        self.deferred = k.deferred
        if status == HW_NO_MEMORY:
            raise MemoryError("timing engine: out of memory")
        if status == HW_STOPPED:
            raise taker.error if interruption.error is None else interruption.error
        return {
            "status": status, "end": k.end, "executed": executed[:instrs], "account": account,
            "stalled": stalled[:streams], "group_end": group_end,
            "semaphore": semaphore[:groups * semaphores].reshape(groups, semaphores), "blocked": blocked,
            "counters": tuple([k.counter[i] for i in range(HW_COUNTERS)]), "rows": rows[:k.rows],
            "lost": k.lost, "started": k.started,
        }


def in_order(tables, int64_t first_stream, int64_t streams, int64_t core, int64_t arrays, int64_t period,
             int64_t budget):
    """Whether the abstract execution of one core finds neither a deadlock nor unordered accesses (hwsim.program.order).

    tables: as of Machine.run without cost, group, engine and window, and queue_depth (engines), buffer_slots and
    first_slot (buffers). first_stream, streams: those of the core's group. core: its index. arrays: how many there are.
    period: loops of more than 3 * period passes take 2 * period and the rest; 0: all. False also where that could not
    be found out: too many slots, or no memory.
    """
    cdef hw_order k
    cdef int found
    checked = {name: _table(name, tables[name], columns) for name, columns in ORDER_COLUMNS.items()}
    k.instr = <const hw_instr *>address(checked["instr"])
    k.tile = <const hw_tile *>address(checked["tile"])
    k.affine = <const hw_affine *>address(checked["affine"])
    k.term = <const hw_term *>address(checked["term"])
    k.derived = <const hw_derived *>address(checked["derived"])
    k.sync = <const hw_sync *>address(checked["sync"])
    k.node = <const hw_node *>address(checked["node"])
    k.stream = <const hw_stream *>address(checked["stream"]) + first_stream
    k.semaphore_initial = address(checked["semaphore_initial"])
    k.semaphore_peers = address(checked["semaphore_peers"])
    k.queue_depth = address(checked["queue_depth"])
    k.buffer_slots, k.first_slot = address(checked["buffer_slots"]), address(checked["first_slot"])
    k.streams, k.engines, k.semaphores = streams, len(tables["queue_depth"]), len(tables["semaphore_initial"])
    k.buffers, k.arrays, k.core = len(tables["buffer_slots"]), arrays, core
    k.period, k.budget, k.most_slots = period, budget, 1 << 20
    with nogil:
        found = hw_in_order(&k)
    return found != 0


def check_places(tables, int64_t first_stream, int64_t streams, int64_t first_core, int64_t cores, int64_t semaphores,
                 int64_t zeroing, int64_t period):
    """Check addresses, scopes and counts of one group's streams (hwsim.program.places).

    tables: as of in_order without queue_depth, buffer_slots, first_slot, semaphore_initial and _peers; and zero_list,
    zero_variable, and extent (arrays): rows and columns as stored. zeroing: the opcode that zero_at holds for. period:
    as of in_order. Returns int64 (semaphores, 4): signalled and awaited by a core, and the same with shortened loops;
    None where a rule may be violated.
    """
    cdef hw_places k
    cdef int kept
    checked = {name: _table(name, tables[name], columns) for name, columns in PLACE_COLUMNS.items()}
    sums = np.zeros((max(semaphores, 1), 4), np.int64)
    cdef int64_t[:, ::1] found = sums
    k.instr = <const hw_instr *>address(checked["instr"])
    k.tile = <const hw_tile *>address(checked["tile"])
    k.affine = <const hw_affine *>address(checked["affine"])
    k.term = <const hw_term *>address(checked["term"])
    k.derived = <const hw_derived *>address(checked["derived"])
    k.sync = <const hw_sync *>address(checked["sync"])
    k.node = <const hw_node *>address(checked["node"])
    k.stream = <const hw_stream *>address(checked["stream"]) + first_stream
    k.zero_list, k.zero_variable = address(checked["zero_list"]), address(checked["zero_variable"])
    k.extent, k.sums = address(checked["extent"]), &found[0, 0]
    k.streams, k.first_core, k.cores, k.zeroing, k.period = streams, first_core, cores, zeroing, period
    with nogil:
        kept = hw_check_places(&k)
    return sums[:semaphores] if kept else None


def _table(name, table, columns):
    """A contiguous int64 copy of `table` with at least one row, so that it has an address."""
    if not len(table):
        return np.zeros((1, columns), np.int64)
    array = np.ascontiguousarray(table, np.int64)
    if array.ndim != 2 or array.shape[1] != columns:
        array = array.reshape(-1, columns)
    return array
