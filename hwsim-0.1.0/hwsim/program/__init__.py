"""Programs: instructions, buffers, streams and semaphores, a builder for them, and the static checker."""
