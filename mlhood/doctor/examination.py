"""The examination: all checks, run concurrently and isolated from each other's failures, and their report.

The report is plain text in 80 columns, readable on a terminal, in a pipe and in a bug report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mlhood.doctor import environment
from mlhood.doctor.environment import Finding, libraries, libraries_for_tests, run_python
from mlhood.measure import Machine, machine
from mlhood.measure.machine import binary_size, describe_cores, describe_vector

# imports wait for the disk as much as for the processor, so a few more threads than cores pay off
_WORKERS = 4
WIDTH = 80
_STYLES = {True: "green", False: "red"}


@dataclass(frozen=True)
class Ability:
    """Something that a user wants to do, and the findings it depends on."""

    name: str
    needs: tuple[str, ...]


@dataclass(frozen=True)
class AbilityVerdict:
    """Whether an ability works on this machine, and if not, the reason and the remedy."""

    name: str
    works: bool
    reason: str = ""
    todo: str = ""


ABILITIES = (
    *(
        Ability(f"{name}.ipynb: run it, check it, hand it in", ("libraries", "disk", "local port"))
        for name in ("P1", "P2", "P3", "P4", "P5")
    ),
    Ability("Show a model in Netron", ("libraries", "local port")),
    Ability("Draw a model as SVG, PNG or PDF", ("libraries", "local port", "browser")),
    Ability("Build a model for WebAssembly (mlhood compile --target wasm)", ("libraries", "WebAssembly tools")),
    Ability("Run the repository's own tests", ("libraries", "test libraries", "disk", "local port")),
    Ability("Grade a class, each submission in a sandbox (mlhood grade)", ("libraries", "sandbox")),
)


def verdicts(findings: Iterable[Finding]) -> tuple[AbilityVerdict, ...]:
    """Return a verdict on each ability of which all needs were examined: it works if everything it depends on does."""
    by_name = {finding.name: finding for finding in findings}
    examined = [ability for ability in ABILITIES if by_name.keys() >= set(ability.needs)]
    return tuple(_verdict(ability, [by_name[name] for name in ability.needs]) for ability in examined)


def _verdict(ability: Ability, needed: list[Finding]) -> AbilityVerdict:
    faults = [finding for finding in needed if not finding.works]
    reason = f"needs what does not work: {', '.join(fault.name for fault in faults)}" if faults else ""
    todo = "; ".join(fault.todo for fault in faults if fault.todo)
    return AbilityVerdict(ability.name, not faults, reason, todo)


@dataclass(frozen=True)
class Examination:
    """The machine, the findings on it, and what follows from them."""

    machine: Machine
    findings: tuple[Finding, ...]

    @property
    def verdicts(self) -> tuple[AbilityVerdict, ...]:
        """One verdict for each thing a user may want to do."""
        return verdicts(self.findings)

    @property
    def healthy(self) -> bool:
        """Whether everything required works; optional parts may be missing."""
        return all(finding.works for finding in self.findings if finding.required)

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-serializable data for `mlhood doctor --json`."""
        return {
            "healthy": self.healthy,
            "machine": self.machine.as_dict(),
            "findings": [asdict(finding) for finding in self.findings],
            "abilities": [asdict(verdict) for verdict in self.verdicts],
        }


def examine() -> Examination:
    """Examine this machine, for work in the current folder. Takes a few seconds."""
    with ThreadPoolExecutor(_WORKERS) as importers, ThreadPoolExecutor(_WORKERS) as checks:
        started: list[tuple[str, bool, Future[Finding | None]]] = [
            ("libraries", True, checks.submit(libraries, importers)),
            ("disk", True, checks.submit(environment.disk, Path.cwd())),
            ("local port", True, checks.submit(environment.local_port)),
            ("browser", False, checks.submit(_browser)),
            ("sandbox", False, checks.submit(environment.sandbox)),
            ("WebAssembly tools", False, checks.submit(_webassembly)),
            ("test libraries", False, checks.submit(libraries_for_tests)),
        ]
        findings = [finding_or_error(name, required, future.result) for name, required, future in started]
    return Examination(machine(), tuple(filter(None, findings)))


def finding_or_error(name: str, required: bool, result: Callable[[], Finding | None]) -> Finding | None:
    """Return a check's finding, if any; an exception in the check is a finding too, as the machine may be broken."""
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


def _webassembly() -> Finding:
    # in a separate process, as the browser
    code = "from mlhood.compiler.backends.c.wasm import find_program as f; print(f('clang'), 'and', f('wasm-ld'))"
    error, paths = run_python(code)
    return environment.webassembly(error, paths.strip())


def print_report(examination: Examination) -> None:
    """Print the machine, the findings and the verdicts."""
    console = Console(highlight=False)
    console.width = min(console.width, WIDTH)
    marks = _marks(console.encoding)
    _section(console, "This machine", facts(examination.machine))
    _section(console, "What was checked", [_finding_row(finding, marks) for finding in examination.findings])
    _section(console, "What works here", [_verdict_row(verdict, marks) for verdict in examination.verdicts])
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


def _finding_row(finding: Finding, marks: dict[bool, str]) -> tuple[Text, Text]:
    word = "works" if finding.works else "does not work" if finding.required else "does not work (optional)"
    mark = (f"{marks[finding.works]} {word}", _STYLES[finding.works])
    return Text(finding.name), Text.assemble(mark, f": {finding.message}")


def _verdict_row(verdict: AbilityVerdict, marks: dict[bool, str]) -> tuple[Text, Text]:
    word = "works" if verdict.works else "does not"
    reasons = [f"why: {verdict.reason}"] if verdict.reason else []
    remedies = [f"what to do: {verdict.todo}"] if verdict.todo else []
    mark = Text(f"{marks[verdict.works]} {word}", _STYLES[verdict.works])
    return mark, Text("\n".join([verdict.name, *reasons, *remedies]))


def _conclusion(examination: Examination) -> str:
    if not examination.healthy:
        return "Something required is missing or broken: see above for what to do."
    if all(verdict.works for verdict in examination.verdicts):
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


def _marks(encoding: str) -> dict[bool, str]:
    """Return the marks, in ASCII where the terminal's encoding lacks the characters."""
    marks = {True: "✓", False: "✗"}
    try:
        "".join(marks.values()).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return {True: "+", False: "-"}
    return marks
