"""The papers' experiments and published measurements, compared with the simulator. No run depends on it."""
