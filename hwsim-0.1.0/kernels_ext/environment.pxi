# The floating-point environment around calls of the kernels; see include/hw_environment.h.
cdef extern from "hw_environment.h" nogil:
    uint64_t hw_enter_environment()
    void hw_leave_environment(uint64_t before)
