"""The fixture `cli`."""

from command_line import cli  # noqa: F401
