"""Data files (devices, libraries): YAML text whose numbers each carry a source, read, checked and explained.

Importing this package is cheap: pydantic and PyYAML are imported when a file is first read.
"""
