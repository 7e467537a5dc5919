"""SM clock, power and reasons for a lower clock, sampled from the driver's management library while work runs."""

from __future__ import annotations

import ctypes
import statistics
import threading
import time

REASONS = {
    1: "idle", 2: "application clocks", 4: "power cap", 8: "hardware slowdown", 32: "thermal (software)",
    64: "thermal (hardware)", 128: "power brake",
}  # fmt: skip


class Value(ctypes.Structure):
    """nvmlFieldValue_t."""

    _fields_ = [
        ("field", ctypes.c_uint), ("scope", ctypes.c_uint), ("timestamp", ctypes.c_longlong),
        ("latency", ctypes.c_longlong), ("kind", ctypes.c_uint), ("status", ctypes.c_uint), ("value", ctypes.c_uint64),
    ]  # fmt: skip


INSTANT_POWER = 186  # NVML_FI_DEV_POWER_INSTANT


class Sampler:
    """Context that samples every few milliseconds; `summary()` afterwards. Without the library it gives nothing."""

    def __init__(self, every: float = 0.01) -> None:
        self.every, self.rows, self.stop = every, [], threading.Event()
        try:
            self.c = ctypes.CDLL("libnvidia-ml.so.1")
            self.handle = ctypes.c_void_p()
            self.c.nvmlInit_v2()
            if self.c.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.handle)):
                self.c = None
        except OSError:
            self.c = None

    def read(self) -> tuple[float, int, int, float, float, int, int]:
        """Time s, SM MHz, memory MHz, instant W, average W, temperature C, reasons."""
        sm, memory, power, heat = (ctypes.c_uint() for _ in range(4))
        reasons, value = ctypes.c_ulonglong(), Value(field=INSTANT_POWER)
        c, handle = self.c, self.handle
        c.nvmlDeviceGetClockInfo(handle, 1, ctypes.byref(sm))
        c.nvmlDeviceGetClockInfo(handle, 2, ctypes.byref(memory))
        c.nvmlDeviceGetPowerUsage(handle, ctypes.byref(power))
        c.nvmlDeviceGetTemperature(handle, 0, ctypes.byref(heat))
        c.nvmlDeviceGetCurrentClocksThrottleReasons(handle, ctypes.byref(reasons))
        c.nvmlDeviceGetFieldValues(handle, 1, ctypes.byref(value))
        return (time.monotonic(), sm.value, memory.value, value.value / 1e3, power.value / 1e3, heat.value,
                reasons.value)  # fmt: skip

    def loop(self) -> None:
        """The thread's work."""
        while not self.stop.wait(self.every):
            self.rows.append(self.read())

    def __enter__(self) -> Sampler:
        self.rows, self.stop = [], threading.Event()
        if self.c:
            self.thread = threading.Thread(target=self.loop, daemon=True)
            self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.c:
            self.stop.set()
            self.thread.join()

    def summary(self, skip: float = 0.3) -> dict[str, object]:
        """Means over the samples after the first `skip` of the time."""
        rows = self.rows[int(len(self.rows) * skip) :]
        if not rows:
            return {}
        reasons = 0
        for row in rows:
            reasons |= row[6]
        return {
            "sm_mhz_mean": round(statistics.mean(r[1] for r in rows), 1),
            "sm_mhz_least": min(r[1] for r in rows),
            "sm_mhz_most": max(r[1] for r in rows),
            "memory_mhz": rows[-1][2],
            "power_w_mean": round(statistics.mean(r[3] for r in rows), 1),
            "power_w_averaged_by_driver": round(rows[-1][4], 1),
            "temperature_c": rows[-1][5],
            "reasons": [text for bit, text in REASONS.items() if reasons & bit],
            "samples": len(rows),
        }

    def limits(self) -> dict[str, object]:
        """Power limit W and largest clocks MHz."""
        if not self.c:
            return {}
        limit, sm, memory = (ctypes.c_uint() for _ in range(3))
        self.c.nvmlDeviceGetEnforcedPowerLimit(self.handle, ctypes.byref(limit))
        self.c.nvmlDeviceGetMaxClockInfo(self.handle, 1, ctypes.byref(sm))
        self.c.nvmlDeviceGetMaxClockInfo(self.handle, 2, ctypes.byref(memory))
        version = ctypes.create_string_buffer(80)
        self.c.nvmlSystemGetDriverVersion(version, 80)
        return {
            "power_limit_w": limit.value / 1e3, "sm_mhz_max": sm.value, "memory_mhz_max": memory.value,
            "driver": version.value.decode(),
        }  # fmt: skip
