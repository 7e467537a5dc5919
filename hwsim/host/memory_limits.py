"""What limits on this process leave of memory: its own (RLIMIT_AS, RLIMIT_DATA) and those of its control groups.

It knows where Linux says so, and bytes; not what the machine has.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

try:
    import resource
except ImportError:  # no POSIX system
    resource = None  # type: ignore[assignment]

PROC_SELF = Path("/proc/self")
UNLIMITED = 1 << 62  # bytes: version 1 writes such a number where there is no limit
#: Limit of the process, and the field of /proc/self/statm with the pages that count towards it.
PROCESS_LIMITS = (("RLIMIT_AS", 0), ("RLIMIT_DATA", 5))


@dataclass(frozen=True)
class GroupFiles:
    """The files of one version of control groups. controller: in lines of /proc/self/cgroup; mount: type and option in
    /proc/self/mountinfo. reclaimable: the line of memory.stat with cached files, which new allocations displace.
    """

    controller: str
    mount: tuple[str, str]
    limit: str
    usage: str
    reclaimable: str


GROUPS = (
    GroupFiles("", ("cgroup2", ""), "memory.max", "memory.current", "inactive_file"),
    GroupFiles("memory", ("cgroup", "memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def bytes_left() -> int | None:
    """Bytes that the tightest of the limits leaves; None where there is none, or the system does not say."""
    return min((*_left_of_process(), *_left_of_groups()), default=None)


def _text(path: Path) -> str:
    """A small file's text; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() else None


def _left_of_process() -> Iterator[int]:
    """What each limit of the process leaves."""
    if resource is None:
        return
    soft = {name: resource.getrlimit(getattr(resource, name))[0] for name, _ in PROCESS_LIMITS}
    if all(limit == resource.RLIM_INFINITY for limit in soft.values()):
        return
    pages = _text(PROC_SELF / "statm").split()
    for name, field in PROCESS_LIMITS:
        if soft[name] != resource.RLIM_INFINITY and len(pages) > field:
            yield max(0, soft[name] - int(pages[field]) * os.sysconf("SC_PAGE_SIZE"))


def _left_of_groups() -> Iterator[int]:
    """What the limit of each control group of the process leaves, its parents' included."""
    paths: dict[str, str] = {}
    for line in _text(PROC_SELF / "cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        paths |= dict.fromkeys(controllers.split(","), path)
    for files in GROUPS:
        if files.controller in paths:
            for folder in _folders(files, paths[files.controller]):
                limit = _number(_text(folder / files.limit))
                if limit is None or limit >= UNLIMITED:  # before the usage, which takes the system milliseconds
                    continue
                usage = _number(_text(folder / files.usage))
                if usage is not None:
                    yield max(0, limit - usage + _reclaimable(folder, files))


def _folders(files: GroupFiles, path: str) -> Iterator[Path]:
    """The folders of a control group and of its parents, as far as they are mounted."""
    kind, option = files.mount
    for line in _text(PROC_SELF / "mountinfo").splitlines():
        before, after = (part.split() for part in line.partition(" - ")[::2])
        if len(before) < 5 or len(after) < 3 or after[0] != kind or (option and option not in after[2].split(",")):
            continue
        root, mounted = PurePosixPath(before[3]), Path(before[4])
        inside = PurePosixPath(path)
        # A container may see its own group as the root of the mount, and the path of the host.
        below = inside.relative_to(root).parts if inside.is_relative_to(root) else ()
        for count in range(len(below), -1, -1):
            yield mounted.joinpath(*below[:count])
        return


def _reclaimable(folder: Path, files: GroupFiles) -> int:
    for line in _text(folder / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name == files.reclaimable:
            return _number(value) or 0
    return 0
