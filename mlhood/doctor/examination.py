"""The examination: everything tried at once, each trial kept from spoiling the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mlhood.doctor import surroundings
from mlhood.doctor.finding import Finding, Verdict, judge
from mlhood.doctor.libraries import attempt, libraries, libraries_for_tests
from mlhood.measure import Machine, machine

# imports wait for the disk as much as for the processor, so a few more than two cores pay
_AT_ONCE = 4


@dataclasses.dataclass(frozen=True)
class Examination:
    """What this machine is, what was tried on it, and what follows."""

    machine: Machine
    findings: tuple[Finding, ...]

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """One verdict for each thing a user may want to do."""
        return judge(self.findings)

    @property
    def healthy(self) -> bool:
        """Whether everything that is required works; optional parts may be missing."""
        return all(finding.works for finding in self.findings if finding.required)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for `mlhood doctor --json`."""
        return {
            "healthy": self.healthy,
            "machine": self.machine.as_dict(),
            "findings": [dataclasses.asdict(finding) for finding in self.findings],
            "abilities": [dataclasses.asdict(verdict) for verdict in self.verdicts],
        }


def examine(folder: Path | None = None) -> Examination:
    """Examine this machine, for work in `folder` (default: where the process is). Takes a few seconds."""
    place = folder or Path.cwd()
    with ThreadPoolExecutor(_AT_ONCE) as loaders, ThreadPoolExecutor(_AT_ONCE) as trials:
        started: list[tuple[str, bool, Future[Finding]]] = [
            ("libraries", True, trials.submit(libraries, loaders)),
            ("disk", True, trials.submit(surroundings.disk, place)),
            ("local port", True, trials.submit(surroundings.local_port)),
            ("browser", False, trials.submit(_browser)),
            ("sandbox", False, trials.submit(surroundings.sandbox)),
            ("test libraries", False, trials.submit(libraries_for_tests)),
        ]
        findings = tuple(settle(name, required, future.result) for name, required, future in started)
    return Examination(machine(), findings)


def settle(name: str, required: bool, result: Callable[[], Finding]) -> Finding:
    """Return a trial's finding; a trial that breaks is a finding too, as a broken machine is why one asks."""
    try:
        return result()
    except Exception as error:
        says = f"could not be examined ({type(error).__name__}: {error})"
        return Finding(name, False, says, "run the README's first command again", required)


def _browser() -> Finding:
    # in a process of its own, as `exchange` loads torch: slow where it works, deadly where it does not
    code = "from mlhood.exchange import find_browser; print(find_browser() or '')"
    failure, path = attempt(code)
    if failure:
        return Finding("browser", False, f"none could be looked for ({failure})", "repair what this names")
    return surroundings.browser(Path(path.strip()) if path.strip() else None)
