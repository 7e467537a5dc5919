"""The laboratory's data files."""
