"""The claims of the papers."""
