"""Grade a class by the real command, which is killed and called again: how fast, how small, how safe."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from mlhood.grading.gradebook.gradebook import GRADEBOOK_FILE
from tests.tools.grading.audit import Audit, audit
from tests.tools.grading.calls import Call, Fault, Log, Peaks, per_minute, run_grade, verdict
from tests.tools.grading.variants import Variant, write_submissions

MIB = 1 << 20
MOST_MEMORY = 300 * MIB
MIDDLE = 0.1, 0.9  # fractions of the class between which it is killed
SEED_TEXT = "of the bench"


@dataclass(frozen=True)
class Setting:
    """How to grade the class, and how often the call is killed; the seed determines when."""

    project: str = "P1"
    jobs: int = 2
    kills: int = 2
    seed: int = 0


@dataclass
class ClassRun:
    """The outcome: the calls one after the other, and an audit of the gradebook in the end."""

    submissions: Sequence[Variant]
    setting: Setting
    calls: list[Call] = field(default_factory=list)
    audit: Audit | None = None

    @property
    def seconds(self) -> float:
        """Duration of all calls together, including work that a kill has made useless."""
        return sum(call.seconds for call in self.calls)

    @property
    def per_minute(self) -> float:
        """Submissions graded per minute."""
        return per_minute(self.audit.complete if self.audit else 0, self.seconds)

    @property
    def peaks(self) -> Peaks:
        """The peak memory of all calls."""
        peaks = Peaks()
        for call in self.calls:
            peaks.update(call.peaks)
        return peaks

    @property
    def held(self) -> bool:
        """Whether every mark is stored once and correct, all kills hit a call, and the grader stayed small."""
        kills = sum(call.killed for call in self.calls)
        sound = self.audit is not None and self.audit.sound
        return sound and kills == self.setting.kills and self.peaks.grader <= MOST_MEMORY

    def text(self) -> str:
        """Return the outcome as text."""
        if not self.calls:
            return "nothing was measured"
        calls = pd.DataFrame(
            [
                {"call": number, "seconds": f"{call.seconds:.1f}", "graded": call.graded, "ended": _ending(call)}
                for number, call in enumerate(self.calls, start=1)
            ]
        )
        memory = pd.DataFrame([{"memory": name, "MiB": f"{size / MIB:.0f}"} for name, size in self._memory()])
        lines = [calls.to_string(index=False), "", memory.to_string(index=False), ""]
        lines.append(f"{self.per_minute:.2f} submissions per minute with --jobs {self.setting.jobs}")
        lines.append(self.audit.text() if self.audit else "there is no gradebook")
        promise = f"killed {self.setting.kills} times, every mark stored once and correct"
        lines.append(verdict(f"{promise}, at most {MOST_MEMORY // MIB} MiB in the grader", self.held))
        return "\n".join(lines)

    def _memory(self) -> list[tuple[str, int]]:
        peaks = self.peaks
        return [
            ("grader itself", peaks.grader),
            ("largest worker", peaks.worker),
            ("largest process in a sandbox", peaks.sandboxed),
            ("all together, with shared pages counted repeatedly", peaks.together),
        ]

    def as_dict(self) -> dict[str, Any]:
        """Return the outcome as plain data."""
        return {
            "setting": asdict(self.setting),
            "submissions": len(self.submissions),
            "calls": [asdict(call) | {"killed": call.killed} for call in self.calls],
            "seconds": self.seconds,
            "per_minute": self.per_minute,
            "peak_bytes": asdict(self.peaks),
            "audit": asdict(self.audit) if self.audit else None,
            "held": self.held,
        }


def _ending(call: Call) -> str:
    return "killed" if call.killed else f"exit code {call.code}"


def grade_class(run: ClassRun, folder: Path, log: Log) -> None:
    """Grade a class; `run` is filled with the outcome, also after Ctrl-C.

    The submissions and the gradebook are left in `folder`, which is empty before.

    Raises:
        GradingError: A call could not start its work.
    """
    arguments = write_class(run.submissions, folder, run.setting.project)
    arguments += ["--out", folder / "graded", "--jobs", run.setting.jobs]
    try:
        _call_until_finished(run, arguments, log)
    finally:
        if (gradebook := folder / "graded" / GRADEBOOK_FILE).is_file():
            run.audit = audit(gradebook, run.submissions)


def write_class(submissions: Sequence[Variant], folder: Path, project: str) -> list[object]:
    """Write submissions and a seed into a folder; return the arguments of `mlhood grade` for them."""
    seed_file = folder / "seed"
    seed_file.write_text(SEED_TEXT, encoding="utf-8")
    return [write_submissions(submissions, folder / "submissions", project), "--seed-file", seed_file]


def _call_until_finished(run: ClassRun, arguments: Sequence[object], log: Log) -> None:
    """Call until a call is not killed."""
    for moment in [*_kill_moments(run.setting, len(run.submissions)), None]:
        graded = sum(call.graded for call in run.calls)
        fault = None if moment is None else Fault(max(int(moment) - graded, 1), moment % 1, subprocess.Popen.kill)
        run.calls.append(Call())
        run_grade(arguments, log, fault, run.calls[-1])
        if not run.calls[-1].killed:
            return
        log(f"killed after {run.calls[-1].graded} submissions, called again")


def _kill_moments(setting: Setting, count: int) -> list[float]:
    """Return when to kill, in submissions from the start: one random moment in each of equal parts of the middle."""
    rng = random.Random(setting.seed)
    low, high = MIDDLE
    width = (high - low) / max(setting.kills, 1)
    return [count * (low + width * (i + rng.random())) for i in range(setting.kills)]
