"""The machine as macOS shows it: `sysctl`.

Source: Apple, "Determining system capabilities" (the `hw.perflevel` keys).
"""

from __future__ import annotations

import os
import subprocess

from mlhood.measure.machine.facts import Caches, Cores, Hardware, Memory


def read() -> Hardware:
    """Ask `sysctl` for the machine's facts; what it does not answer stays unknown."""
    try:
        answer = subprocess.run(
            ["/usr/sbin/sysctl", "hw", "machdep.cpu"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return Hardware(cores=Cores(logical=os.cpu_count(), usable=os.cpu_count()))
    return parse_sysctl(answer.stdout)


def parse_sysctl(text: str) -> Hardware:
    """Return the facts in lines of `key: value`.

    Apple's processors have two kinds of cores; `hw.perflevel0` are the fast ones, whose caches are reported.
    """
    rows = [line.partition(":") for line in text.splitlines()]
    said = {key.strip(): value.strip() for key, _, value in rows}

    def number(*names: str) -> int | None:
        values = (said.get(name, "") for name in names)
        return next((int(value) for value in values if value.isdigit() and int(value) > 0), None)

    logical = number("hw.logicalcpu", "hw.ncpu")
    return Hardware(
        cpu=said.get("machdep.cpu.brand_string") or None,
        cores=Cores(number("hw.physicalcpu"), logical, logical),
        caches=Caches(
            l1d=number("hw.perflevel0.l1dcachesize", "hw.l1dcachesize"),
            l2=number("hw.perflevel0.l2cachesize", "hw.l2cachesize"),
            l3=number("hw.perflevel0.l3cachesize", "hw.l3cachesize"),
            line=number("hw.cachelinesize"),
        ),
        memory=Memory(total=number("hw.memsize")),
    )
