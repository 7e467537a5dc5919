"""Campaign: a larger product takes no less time.

    python lab/tools/fuzz/growth.py --count 100000 --log growth.jsonl    # all cores; goes on where the log ends

A case is a product as in times.py, in the default state, and the same with one size larger by 1 to 50 %. Growth is of
programs, and of a library's calls that run the same kernel.
"""

import math
import random

from campaign import main
from times import LIMIT_S, drawn, run

SHORTER = 0.05  # a larger product may take so much less: cycles of one tile's edge
SHORTER_BY_LIBRARY = 0.15  # errors of the fit
LAUNCH_S = 2.1e-6  # in which differences of a library's short kernels are lost
ALIGNED = 64


def kernel(result, sizes):
    """What a library runs, in words, and how its sizes are aligned; "": a program of hwsim's own choice."""
    decided = [result.gemm.decided(name) for name in ("kernel", "split_k")]
    words = [decision.value for decision in decided if decision is not None and decision.by == "library"]
    return " ".join([*words, *(str(math.gcd(size, ALIGNED)) for size in sizes.values())]) if words else ""


def case(number):
    """One product, and a larger one."""
    rng = random.Random(number)
    chip, options, sizes = drawn(rng)
    name, share = rng.choice("mnk"), 1 + rng.uniform(0.01, 0.5)
    larger = sizes | {name: max(sizes[name] + 1, int(sizes[name] * share))}
    if rng.random() < 0.7:  # as aligned as the other
        step = next(step for step in (64, 16, 8, 1) if sizes[name] % step == 0)
        larger[name] = -(-larger[name] // step) * step
    first = run(chip, options, sizes)
    second = None if first is None else run(chip, options, larger)
    if first is None or second is None:
        return "without a time"
    if kernel(first, sizes) != kernel(second, larger):
        return "other kernels"
    most, launch = (SHORTER_BY_LIBRARY, LAUNCH_S) if first.times.by_library else (SHORTER, 0.0)
    shorter = 1 - (second.seconds + launch) / (first.seconds + launch)
    if shorter > most:
        raise ArithmeticError(
            f"{100 * shorter:.0f} % shorter with {name} = {larger[name]}; {chip.name} {options} {sizes}"
        )
    return "no shorter"


if __name__ == "__main__":
    main("growth", case, __doc__.partition("\n")[0], LIMIT_S)
