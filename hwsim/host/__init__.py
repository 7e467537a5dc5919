"""The host: memory, threads, processes, files, cache, environment, plug-ins. It knows no GEMM and no device."""
