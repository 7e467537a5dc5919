"""Reading of device and library files: YAML in which every number has a source; parsed, validated, with positions in
errors.

Importing this package is cheap: pydantic and PyYAML are imported when a file is first read.
"""
