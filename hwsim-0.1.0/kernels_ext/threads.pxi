cdef int _threads(object threads) except -1:
    """A number of host threads that a caller gave."""
    if threads < 1:
        raise InputError(f"threads={threads} is not possible; give at least 1")
    return min(threads, 1 << 16)
