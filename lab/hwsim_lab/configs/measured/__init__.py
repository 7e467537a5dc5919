"""Published and own measurements, as tables."""
