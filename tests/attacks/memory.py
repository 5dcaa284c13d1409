"""A grader of its own process for attacks on its memory: runs cells in a sandbox, and reports its peak."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from pathlib import Path

from mlhood.grading.checks.expect import CheckFailed
from mlhood.grading.execution.kernel import CellOutcome
from mlhood.grading.sandbox.kernel import SandboxPool
from mlhood.grading.sandbox.limits import MIB, Limits
from tests.attacks.attacked import Attacked

SECONDS = 300
LIMITS = Limits(memory=3 << 30, disk=512 * MIB)


def main() -> None:
    """Run attacks from the standard input, a JSON list of [name, preparation, cell, whether a check follows].

    Prints a JSON object: what became of each attack by its name, and `peak`, in MiB, with `before` any attack.
    """
    attacks = json.load(sys.stdin)
    report: dict[str, object] = {"before": _peak()}
    with (
        SandboxPool(LIMITS, imports=(), prewarm=False) as pool,
        tempfile.TemporaryDirectory() as folder,
        pool.kernel(Path(folder)) as kernel,
    ):
        for name, prepare, source, check in attacks:
            report[name] = [_attack(Attacked(kernel), prepare, source, check=check), _peak()]
    print(json.dumps({**report, "peak": _peak()}))


def _attack(attacked: Attacked, prepare: str, source: str, *, check: bool) -> str:
    attacked.kernel._history.clear()
    attacked.kernel._restart()
    attacked.run(prepare, SECONDS)
    outcome: CellOutcome = attacked.run(source, SECONDS)
    if not check:
        return outcome.error
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return f"value {type(attacked.submission.call('f')).__name__}"
    except CheckFailed as failure:
        return str(failure)


def _peak() -> int:
    """The peak of the resident memory of this process in MiB, without that of its parent, which `getrusage` adds."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM:"))) >> 10


if __name__ == "__main__":
    main()
