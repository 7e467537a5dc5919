"""Kernels that are one but for names: what holds for one of them holds for all, so a checker need look once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hwsim.program.ir import GlobalArray, GlobalTile, Instr, Kernel, Loop, Node, Tile


def anonymous(kernel: Kernel, arrays: Sequence[GlobalArray]) -> Kernel:
    """The kernel without its name and labels, its arrays called by order of appearance, shape and format.

    Two kernels are equal then if they do the same to arrays alike. An array that is not among `arrays` keeps its name.
    """
    known = {array.name: array for array in arrays}
    names: dict[str, str] = {}

    def tile_of(tile: Tile) -> Tile:
        if not isinstance(tile, GlobalTile) or tile.array not in known:
            return tile
        array = known[tile.array]
        name = names.setdefault(tile.array, f"{len(names)}: {array.rows} x {array.cols} {array.format}")
        return replace(tile, array=name)

    def node_of(node: Node) -> Node:
        if isinstance(node, Loop):
            return replace(node, body=tuple(map(node_of, node.body)))
        if isinstance(node, Instr):
            writes, reads = tuple(map(tile_of, node.writes)), tuple(map(tile_of, node.reads))
            return replace(node, writes=writes, reads=reads, label="")
        return node

    groups = tuple(
        replace(group, streams=tuple(replace(stream, body=tuple(map(node_of, stream.body))) for stream in group.streams))
        for group in kernel.groups
    )
    return replace(kernel, name="", groups=groups)
