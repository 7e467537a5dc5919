"""Whether an interpreter's headers serve another platform: pyconfig.h's sizes, checked by that platform's compiler.

CPython's headers differ between platforms in pyconfig.h alone. Of it, an extension module depends on the sizes and
alignments of C's types (SIZEOF_LONG, ALIGNOF_LONG, ...) and on the order of bytes. They go into a C file of
static assertions, which the target's compiler refuses where one of them is different there.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

#: Names in pyconfig.h of types that C spells otherwise.
SPELT = {
    "VOID_P": "void *",
    "LONG_LONG": "long long",
    "LONG_DOUBLE": "long double",
    "_BOOL": "_Bool",
    "MAX_ALIGN_T": "max_align_t",
}
#: Where the types other than C's own are declared (fpos_t, pid_t, wchar_t, time_t, pthread_t).
HEADERS = ("stddef.h", "stdint.h", "stdio.h", "sys/types.h", "wchar.h", "time.h", "pthread.h")
DEFINED = re.compile(r"^#\s*define\s+(SIZEOF|ALIGNOF)_(\w+)\s+(\d+)", re.MULTILINE)
ORDER = '_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "order of bytes");\n'
OPERATORS = {"SIZEOF": "sizeof", "ALIGNOF": "_Alignof"}


def c_type(name: str) -> str:
    """C's spelling of a type in a name of pyconfig.h: LONG_LONG is long long, PID_T is pid_t."""
    return SPELT.get(name, name.lower())


def assertions(pyconfig: str) -> str:
    """The C file of assertions for the text of a pyconfig.h. Raises ValueError where that has no sizes, as a file that
    only includes the right one for a platform.
    """
    found = DEFINED.findall(pyconfig)
    if not found:
        raise ValueError("pyconfig.h defines no SIZEOF_: it only includes another; take an interpreter with its own")
    checks = (
        f'_Static_assert({OPERATORS[what]}({c_type(name)}) == {size}, "{what}_{name} is {size} in pyconfig.h");\n'
        for what, name, size in found
    )
    return "".join(f"#include <{name}>\n" for name in HEADERS) + ORDER + "".join(checks)


def check_headers(include: Path, compiler: list[str], work: Path) -> int:
    """Number of sizes in include/pyconfig.h that hold for the target of a compiler command. work: a folder for
    temporary files. Raises ValueError with what the compiler says where one does not.
    """
    path = include / "pyconfig.h"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}; install the headers of this interpreter (python3-dev)") from None
    source = work / "sizes.c"
    source.write_text(assertions(text), encoding="utf-8")
    command = [*compiler, "-std=gnu11", "-c", str(source), "-o", str(work / "sizes.o")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"{path} does not hold for this target:\n{done.stderr.rstrip()}")
    return len(DEFINED.findall(text))
