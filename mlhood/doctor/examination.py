"""The examination: all checks, run concurrently and isolated from each other's failures."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mlhood.doctor import environment
from mlhood.doctor.finding import Finding, Verdict, judge
from mlhood.doctor.libraries import libraries, libraries_for_tests, run_python
from mlhood.measure import Machine, machine

# imports wait for the disk as much as for the processor, so a few more threads than cores pay off
_WORKERS = 4


@dataclasses.dataclass(frozen=True)
class Examination:
    """The machine, the findings on it, and what follows from them."""

    machine: Machine
    findings: tuple[Finding, ...]

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """One verdict for each thing a user may want to do."""
        return judge(self.findings)

    @property
    def healthy(self) -> bool:
        """Whether everything required works; optional parts may be missing."""
        return all(finding.works for finding in self.findings if finding.required)

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-serializable data for `mlhood doctor --json`."""
        return {
            "healthy": self.healthy,
            "machine": self.machine.as_dict(),
            "findings": [_renamed(finding, message="says") for finding in self.findings],
            "abilities": [_renamed(verdict, reason="because") for verdict in self.verdicts],
        }


def _renamed(record: Finding | Verdict, **keys: str) -> dict[str, Any]:
    """Return a record as a dictionary with the keys that the JSON format has for its fields."""
    return {keys.get(name, name): value for name, value in dataclasses.asdict(record).items()}


def examine(folder: Path | None = None) -> Examination:
    """Examine this machine, for work in `folder` (the current one by default). Takes a few seconds."""
    folder = folder or Path.cwd()
    with ThreadPoolExecutor(_WORKERS) as importers, ThreadPoolExecutor(_WORKERS) as checks:
        started: list[tuple[str, bool, Future[Finding]]] = [
            ("libraries", True, checks.submit(libraries, importers)),
            ("disk", True, checks.submit(environment.disk, folder)),
            ("local port", True, checks.submit(environment.local_port)),
            ("browser", False, checks.submit(_browser)),
            ("sandbox", False, checks.submit(environment.sandbox)),
            ("test libraries", False, checks.submit(libraries_for_tests)),
        ]
        findings = tuple(finding_or_error(name, required, future.result) for name, required, future in started)
    return Examination(machine(), findings)


def finding_or_error(name: str, required: bool, result: Callable[[], Finding]) -> Finding:
    """Return a check's finding; an exception in the check is a finding too, as the machine may be broken."""
    try:
        return result()
    except Exception as error:
        message = f"could not be examined ({type(error).__name__}: {error})"
        return Finding(name, False, message, "run the README's first command again", required)


def _browser() -> Finding:
    # in a separate process: `exchange` imports torch, which is slow, and crashes where torch is broken
    error, path = run_python("from mlhood.exchange import find_browser; print(find_browser() or '')")
    if error:
        return Finding("browser", False, f"the search for one failed ({error})", "repair what this names")
    return environment.browser(Path(path.strip()) if path.strip() else None)
