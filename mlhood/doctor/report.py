"""The report: plain text in 80 columns, readable on a terminal, in a pipe and in a bug report."""

from __future__ import annotations

from typing import IO

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mlhood.doctor.examination import Examination
from mlhood.doctor.finding import Finding, Verdict
from mlhood.measure import Machine
from mlhood.measure.machine import binary_size, describe_cores, describe_vector

WIDTH = 80
_STYLES = {True: "green", False: "red"}


def print_report(examination: Examination, file: IO[str] | None = None) -> None:
    """Print the machine, the findings and the verdicts to `file` (standard output by default)."""
    console = Console(file=file, highlight=False)
    console = Console(file=file, highlight=False, width=min(console.width, WIDTH))
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
        "BLAS": f"{blas.library or 'unknown'} {blas.version or ''}".strip() + threads,
        "versions": ", ".join(versions),
    }
    return [(Text(label), Text(text)) for label, text in rows.items()]


def _finding_row(finding: Finding, marks: dict[bool, str]) -> tuple[Text, Text]:
    word = "works" if finding.works else "does not work" if finding.required else "does not work (optional)"
    mark = (f"{marks[finding.works]} {word}", _STYLES[finding.works])
    return Text(finding.name), Text.assemble(mark, f": {finding.message}")


def _verdict_row(verdict: Verdict, marks: dict[bool, str]) -> tuple[Text, Text]:
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
