"""Instructions of the inner loops of the engine's kernels, by the machine code that NVRTC makes: needs a GPU.

    python lab/tools/gpu/instructions.py --nvdisasm PATH

nvdisasm comes with the CUDA toolkit and with Triton. An inner loop is code between a label and a branch back to it,
with no such loop inside. Shown are those that multiply or search the largest exponent: their instructions, and the most
frequent ones. How many products a pass has follows from PER_PRODUCT.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from engine import SPEEDS

from hwsim.backend.cuda.device import compiled
from hwsim.backend.cuda.source import loop_of, program_text
from hwsim.devices import load
from hwsim.devices.query import dot_spec

KERNEL = "tiles"
#: An instruction of each main loop, and how often it stands for a multiply-accumulate.
PER_PRODUCT = {
    "fused.cuh": ("DFMA", 1.0),
    "composite.cuh": ("DFMA", 1.0),
    "two_level.cuh": ("DFMA", 1.0),
    "exact.cuh": ("DFMA", 2.0),
    "pairwise.cuh": ("FMUL", 1.0),
    "chain.cuh": ("FFMA", 1.0),
    "integer.cuh": ("IDP", 0.25),
}
LARGEST, PER_LARGEST = "VIADDMNMX", 0.5  # of pairs of exponents
SHOWN = 5  # kinds of instructions of a loop


def inner_loops(sass: str, kernel: str = KERNEL) -> Iterator[list[str]]:
    """The names of the instructions of each inner loop of a kernel. sass: what nvdisasm writes."""
    text = sass[sass.index(f".text.{kernel}:") :].split("\n\t.section", 1)[0]
    labels: dict[str, int] = {}
    names: list[str] = []
    back: list[tuple[int, int]] = []
    for line in text.splitlines():
        if label := re.match(r"\s*(\.L_x_\d+):", line):
            labels[label[1]] = len(names)
        elif found := re.search(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z]\w+)(.*);", line):
            target = re.search(r"`\((\.L_x_\d+)\)", found[2])
            if found[1] == "BRA" and target and labels.get(target[1], len(names) + 1) < len(names):
                back.append((labels[target[1]], len(names)))
            names.append(found[1])
    for first, last in back:
        if not any(first <= start and stop <= last for start, stop in back if (start, stop) != (first, last)):
            yield names[first : last + 1]


def line_of(names: list[str], loop: str) -> str:
    """What is shown of an inner loop; "" where it neither multiplies nor searches."""
    count = Counter(names)
    product, share = PER_PRODUCT[loop]
    macs = count[product] / share if share >= 1 else count[product] * round(1 / share)
    if not macs:
        macs = count[LARGEST] / PER_LARGEST
    if not macs:
        return ""
    most = ", ".join(f"{number} {name}" for name, number in count.most_common(SHOWN))
    return f"{len(names)} instructions for {macs:.0f} products, {len(names) / macs:.2f} each: {most}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvdisasm", default=shutil.which("nvdisasm"), help="the program (of PATH)")
    given = parser.parse_args()
    if given.nvdisasm is None:
        parser.error("no nvdisasm in PATH; give --nvdisasm")
    for device, name in SPEEDS:
        spec = dot_spec(load(device), name)
        loop = loop_of(spec)
        if loop not in PER_PRODUCT:
            continue
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "code.cubin"
            file.write_bytes(compiled(program_text(spec, divided=False)))
            sass = subprocess.run([given.nvdisasm, "-c", file], capture_output=True, text=True, check=True).stdout
        print(f"{device} {name}, {loop}")
        for line in filter(None, (line_of(names, loop) for names in inner_loops(sass))):
            print(f"  {line}")


if __name__ == "__main__":
    main()
