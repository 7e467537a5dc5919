"""Matrices as codes of a format: from a caller's arrays, between formats, and back."""
