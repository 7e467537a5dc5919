"""The papers' experiments and published measurements, beside the simulator's. No run needs it."""
