"""The fixtures `cli` and `refused`."""

from command_line import cli, refused  # noqa: F401
