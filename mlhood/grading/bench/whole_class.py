"""A class graded by the real command, which is killed on the way and called again: how fast, how small, how safe."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from mlhood.grading.batch.grade_class import GRADEBOOK
from mlhood.grading.bench.audit import Audit, audit
from mlhood.grading.bench.calls import Blow, Call, Say, call, per_minute
from mlhood.grading.bench.memory import Peaks
from mlhood.grading.bench.variants import Variant, hand_in
from mlhood.grading.bench.verdict import verdict

MIB = 1 << 20
MOST_MEMORY = 300 * MIB
MIDDLE = 0.1, 0.9  # of the class: between these shares it is killed
SEED_TEXT = "of the bench"


@dataclass(frozen=True)
class Setting:
    """How to grade the class.

    Args:
        project: Id of the project.
        jobs: Workers side by side.
        kills: How often the call is killed.
        seed: Of the moments at which that happens.
    """

    project: str = "P1"
    jobs: int = 2
    kills: int = 2
    seed: int = 0


@dataclass
class ClassRun:
    """What came of a class: its calls one after the other, and what the gradebook holds in the end."""

    handed: Sequence[Variant]
    setting: Setting
    calls: list[Call] = field(default_factory=list)
    audit: Audit | None = None

    @property
    def seconds(self) -> float:
        """Of all calls together, what a killed one had begun in vain included."""
        return sum(one.seconds for one in self.calls)

    @property
    def per_minute(self) -> float:
        """Submissions graded in a minute."""
        return per_minute(self.audit.whole if self.audit else 0, self.seconds)

    @property
    def peaks(self) -> Peaks:
        """The largest memory of all calls."""
        peaks = Peaks()
        for one in self.calls:
            peaks.take_in(one.peaks)
        return peaks

    @property
    def held(self) -> bool:
        """Whether all is there once and right, all kills fell into a call, and the grader stayed small."""
        kills = sum(one.killed for one in self.calls)
        sound = self.audit is not None and self.audit.sound
        return sound and kills == self.setting.kills and self.peaks.grader <= MOST_MEMORY

    def text(self) -> str:
        """As people read it."""
        if not self.calls:
            return "nothing was measured"
        calls = pd.DataFrame(
            [
                {"call": number, "seconds": f"{one.seconds:.1f}", "graded": one.graded, "ended": _ending(one)}
                for number, one in enumerate(self.calls, start=1)
            ]
        )
        memory = pd.DataFrame([{"memory": name, "MiB": f"{size / MIB:.0f}"} for name, size in self._memory()])
        lines = [calls.to_string(index=False), "", memory.to_string(index=False), ""]
        lines.append(f"{self.per_minute:.2f} submissions a minute with --jobs {self.setting.jobs}")
        lines.append(self.audit.text() if self.audit else "there is no gradebook")
        dealt = f"killed {self.setting.kills} times, all marks once and right"
        lines.append(verdict(f"{dealt}, at most {MOST_MEMORY // MIB} MiB in the grader", self.held))
        return "\n".join(lines)

    def _memory(self) -> list[tuple[str, int]]:
        peaks = self.peaks
        return [
            ("grader itself", peaks.grader),
            ("largest worker", peaks.worker),
            ("largest process in a sandbox", peaks.sandboxed),
            ("all at once, shared pages counted again", peaks.together),
        ]

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "setting": asdict(self.setting),
            "submissions": len(self.handed),
            "calls": [asdict(one) | {"killed": one.killed} for one in self.calls],
            "seconds": self.seconds,
            "per_minute": self.per_minute,
            "peak_bytes": asdict(self.peaks),
            "audit": asdict(self.audit) if self.audit else None,
            "held": self.held,
        }


def _ending(one: Call) -> str:
    return "killed" if one.killed else f"exit code {one.code}"


def grade_class(run: ClassRun, place: Path, say: Say) -> None:
    """Grade a class; what came of it is in `run`, also after Ctrl-C.

    Args:
        run: Takes up what happens.
        place: An empty folder; the submissions and the gradebook are left in it.
        say: Told how it goes.

    Raises:
        GradingError: A call could not do its work.
    """
    setting = run.setting
    submissions = laid_out(run.handed, place, setting.project)
    arguments = [*submissions, "--out", place / "graded", "--jobs", setting.jobs]
    try:
        _calls(run, arguments, say)
    finally:
        if (gradebook := place / "graded" / GRADEBOOK).is_file():
            run.audit = audit(gradebook, run.handed)


def laid_out(handed: Sequence[Variant], place: Path, project: str) -> list[object]:
    """Write submissions and a seed into a folder: what `mlhood grade` is called with to grade them."""
    seed_file = place / "seed"
    folder = hand_in(handed, place / "submissions", project)
    seed_file.write_text(SEED_TEXT, encoding="utf-8")
    return [folder, "--seed-file", seed_file]


def _calls(run: ClassRun, arguments: Sequence[object], say: Say) -> None:
    """Call until a call is not killed."""
    for moment in [*_moments(run.setting, len(run.handed)), None]:
        before = sum(one.graded for one in run.calls)
        blow = None if moment is None else Blow(max(int(moment) - before, 1), moment % 1, subprocess.Popen.kill)
        run.calls.append(Call())
        call(arguments, say, blow, run.calls[-1])
        if not run.calls[-1].killed:
            return
        say(f"killed after {run.calls[-1].graded} submissions, called again")


def _moments(setting: Setting, count: int) -> list[float]:
    """When to kill, in submissions from the start: one moment drawn from each of as many equal parts of the middle."""
    draw = random.Random(setting.seed)  # noqa: S311 - moments, not secrets
    low, high = MIDDLE
    share = (high - low) / max(setting.kills, 1)
    return [count * (low + share * (number + draw.random())) for number in range(setting.kills)]
