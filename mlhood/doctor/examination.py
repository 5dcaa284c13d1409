"""The examination: all checks, run concurrently and isolated from each other's failures, and their report.

The report is plain text in 80 columns, readable on a terminal, in a pipe and in a bug report.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mlhood.doctor import environment
from mlhood.doctor.environment import PURPOSES, Finding, libraries, libraries_for_tests, run_python
from mlhood.measure import Machine, machine
from mlhood.measure.machine import binary_size, describe_cores, describe_vector

# imports wait for the disk as much as for the processor, so a few more threads than cores pay off
_WORKERS = 4
WIDTH = 80
_STYLES = {True: "green", False: "red"}


@dataclass(frozen=True)
class Examination:
    """The machine, and the findings on it."""

    machine: Machine
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """Whether everything required works; optional parts may be missing."""
        return all(finding.works for finding in self.findings if finding.required)

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-serializable data for `mlhood doctor --json`."""
        return {
            "healthy": self.healthy,
            "machine": self.machine.as_dict(),
            "findings": [asdict(finding) | {"needed_for": PURPOSES[finding.name]} for finding in self.findings],
        }


def examine() -> Examination:
    """Examine this machine, for work in the current folder. Takes a few seconds."""
    with ThreadPoolExecutor(_WORKERS) as importers, ThreadPoolExecutor(_WORKERS) as checks:
        started: dict[str, Future[Finding | None]] = {
            "libraries": checks.submit(libraries, importers),
            "disk": checks.submit(environment.disk, Path.cwd()),
            "local port": checks.submit(environment.local_port),
            "browser": checks.submit(_browser),
            "sandbox": checks.submit(environment.sandbox),
            "WebAssembly tools": checks.submit(_webassembly),
            "test libraries": checks.submit(libraries_for_tests),
        }
        findings = [finding_or_error(name, future.result) for name, future in started.items()]
    return Examination(machine(), tuple(filter(None, findings)))


def finding_or_error(name: str, result: Callable[[], Finding | None]) -> Finding | None:
    """Return a check's finding, if any; an exception in the check is a finding too, as the machine may be broken."""
    try:
        return result()
    except Exception as error:
        message = f"could not be examined ({type(error).__name__}: {error})"
        return Finding(name, False, message, "run the README's first command again")


def _browser() -> Finding:
    # in a separate process: `exchange` imports torch, which is slow, and crashes where torch is broken
    error, path = run_python("from mlhood.exchange import find_browser; print(find_browser() or '')")
    if error:
        return Finding("browser", False, f"the search for one failed ({error})", "repair what this names")
    return environment.browser(Path(path.strip()) if path.strip() else None)


def _webassembly() -> Finding:
    # in a separate process, as the browser
    code = "from mlhood.compiler.backends.c.wasm import find_program as f; print(f('clang'), 'and', f('wasm-ld'))"
    error, paths = run_python(code)
    return environment.webassembly(error, paths.strip())


def print_report(examination: Examination) -> None:
    """Print the machine and the findings."""
    console = Console(highlight=False)
    console.width = min(console.width, WIDTH)
    _section(console, "This machine", facts(examination.machine))
    _section(console, "What was checked", [_finding_row(finding) for finding in examination.findings])
    console.print(_conclusion(examination), style=_STYLES[examination.healthy])


def facts(machine: Machine) -> list[tuple[Text, Text]]:
    """Return the machine's facts as rows of label and text."""
    caches, memory, blas = machine.caches, machine.memory, machine.blas
    limit = f", {binary_size(memory.limit)} usable here" if memory.limit else ""
    threads = f", {blas.threads} threads" if blas.threads else ""
    versions = [f"{name} {version}" for name, version in machine.versions.items() if version]
    rows = {
        "processor": f"{machine.cpu} ({machine.architecture})",
        "cores": describe_cores(machine.cores),
        "vectors": f"{describe_vector(machine.vector)}; has {', '.join(machine.vector.sets) or 'unknown'}",
        "caches": f"L1d {binary_size(caches.l1d)}, L2 {binary_size(caches.l2)}, L3 {binary_size(caches.l3)}",
        "memory": f"{binary_size(memory.total)}{limit}",
        "system": machine.system,
        "Python": machine.python,
        "BLAS": f"{blas}{threads}",
        "versions": ", ".join(versions),
    }
    return [(Text(label), Text(text)) for label, text in rows.items()]


def _finding_row(finding: Finding) -> tuple[Text, Text]:
    word = "works" if finding.works else "does not work"
    lines = [f": {finding.message}"]
    if not finding.works:
        lines += [f"needed for: {PURPOSES[finding.name]}", f"what to do: {finding.todo}"]
    return Text(finding.name), Text.assemble((word, _STYLES[finding.works]), "\n".join(lines))


def _conclusion(examination: Examination) -> str:
    if not examination.healthy:
        return "Something required is missing or broken: see above for what to do."
    if all(finding.works for finding in examination.findings):
        return "Everything works."
    return "Everything required works; what is missing is optional."


def _section(console: Console, title: str, rows: list[tuple[Text, Text]]) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(Text(title, style="bold"))
    console.print(Padding(table, (0, 0, 1, 2)))
