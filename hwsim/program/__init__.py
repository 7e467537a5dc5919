"""Programs: instructions, buffers, streams and semaphores; plans and schedules; the builder and the static checks."""
