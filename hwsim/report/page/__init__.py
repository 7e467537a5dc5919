"""Reports as one HTML page: sections of text, tables, drawings and plots."""
