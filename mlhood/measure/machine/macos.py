"""The hardware as macOS reports it: `sysctl`.

Source: Apple, "Determining system capabilities" (the `hw.perflevel` keys).
"""

from __future__ import annotations

import subprocess

from mlhood.measure.machine.facts import CacheSizes, Hardware


def read() -> Hardware:
    """Query `sysctl` for the hardware's facts; missing ones are unknown."""
    try:
        result = subprocess.run(
            ["/usr/sbin/sysctl", "hw", "machdep.cpu"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return Hardware()
    return parse_sysctl(result.stdout)


def parse_sysctl(text: str) -> Hardware:
    """Parse lines of `key: value`.

    Apple's processors have two kinds of cores; the caches are those of the performance cores, `hw.perflevel0`.
    """
    rows = [line.partition(":") for line in text.splitlines()]
    values = {key.strip(): value.strip() for key, _, value in rows}

    def number(*names: str) -> int | None:
        texts = (values.get(name, "") for name in names)
        return next((int(text) for text in texts if text.isdigit() and int(text) > 0), None)

    return Hardware(
        cpu=values.get("machdep.cpu.brand_string") or None,
        caches=CacheSizes(
            l1d=number("hw.perflevel0.l1dcachesize", "hw.l1dcachesize"),
            l2=number("hw.perflevel0.l2cachesize", "hw.l2cachesize"),
            l3=number("hw.perflevel0.l3cachesize", "hw.l3cachesize"),
            line=number("hw.cachelinesize"),
        ),
    )
