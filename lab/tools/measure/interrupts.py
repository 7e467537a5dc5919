"""How long Ctrl-C waits: requests in processes of their own, interrupted after some seconds.

`python lab/tools/measure/interrupts.py --after 0.3 2.0` prints a line for each request and delay: seconds from the
signal to the end of the process, or that it had ended before. Exit code 1 where one took longer than --most-seconds or
ended otherwise than by KeyboardInterrupt.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time

START = "import numpy as np, hwsim; r = np.random.default_rng(0).standard_normal; "
GO = "print('go', flush=True); "
REQUESTS = {
    "kernel": f"a = r((4096, 4096)).astype('f2'); {GO}hwsim.matmul(a, a.T, device='h200', threads=1)",
    "kernel, wide": (
        f"a = r((512, 16384)).astype('f2'); b = np.zeros((16384, 16384), 'f2') + a[:1].T; {GO}"
        "hwsim.matmul(a, b, device='h200', threads=1)"
    ),
    "kernel, long K": f"a = r((64, 1 << 20)).astype('f2'); {GO}hwsim.matmul(a, a.T, device='h200', threads=1)",
    "adder tree": f"a = r((4096, 4096)).astype('f4'); {GO}hwsim.matmul(a, a.T, device='mi210', format='bf16')",
    "exact unit": f"a = r((4096, 4096)).astype('f4'); {GO}hwsim.matmul(a, a.T, device='mi100', format='fp16')",
    "fp64": f"a = r((4096, 4096)); {GO}hwsim.matmul(a, a.T, device='h200', format='fp64')",
    "errors": f"a = r((4096, 4096)).astype('f4'); {GO}hwsim.run(a, a.T, device='h200', format='fp16')",
    "cycles": f"{GO}hwsim.run(m=65536, n=65536, k=65536, device='h200', format='fp16', exact=False)",
    "program": f"a = r((1024, 1024)).astype('f4'); {GO}hwsim.run(a, a, device='ascend910a', functional=True)",
    "tune": f"{GO}hwsim.tune(m=8192, n=8192, k=8192, device='ascend910a')",
    "cuBLAS": (
        f"a = r((2048, 8192)).astype('f4'); {GO}hwsim.run(a, a.T, device='h200', scheme='bf16x9', library='cublas')"
    ),
    "papers": f"from hwsim_lab.papers import processes; {GO}processes.run(['bf16x9'], None, scale='quick', jobs=2)",
    "slices": f"a = r((2048, 2048)); {GO}hwsim.run(a, a, device='h200', scheme='ozaki-fp16')",
}


def main() -> int:
    """Interrupt each request after each delay, and print how long it took to end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--after", type=float, nargs="+", default=[0.3, 2.0], metavar="SECONDS", help="delays")
    parser.add_argument("--most-seconds", type=float, default=1.0, help="that a process may take (default 1)")
    parser.add_argument("--only", default="", metavar="TEXT", help="requests whose name contains this")
    arguments = parser.parse_args()
    failed = 0
    for name in (name for name in REQUESTS if arguments.only in name):
        for delay in arguments.after:
            text, is_right = interrupted(REQUESTS[name], delay, arguments.most_seconds)
            failed += not is_right
            print(f"{name:16}  after {delay:4.1f} s  {text}", flush=True)
    return int(failed > 0)


def interrupted(request: str, delay: float, most_seconds: float) -> tuple[str, bool]:
    """What became of a request that is interrupted `delay` seconds after it began, and whether that is right."""
    command = [sys.executable, "-c", START + request]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay)
        if process.poll() is not None:
            return "had ended", process.returncode == 0
        start = time.perf_counter()
        process.send_signal(signal.SIGINT)
        try:
            _, errors = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            return "did not end in 60 s", False
        seconds = time.perf_counter() - start
    is_right = seconds <= most_seconds and (process.returncode == 0 or "KeyboardInterrupt" in errors)
    return f"{seconds:.2f} s{'' if is_right else ', ' + errors.strip()[-100:]}", is_right


if __name__ == "__main__":
    sys.exit(main())
