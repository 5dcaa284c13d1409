"""The report of `mlhood run`: a page of marks, each check with its reason, and links to what was written.

It needs no network and no scripts, says nothing by colour alone, and prints.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from mlhood.grading.checks.marks import CheckResult, Marks, TaskResult
from mlhood.grading.execution.output_folder import files
from mlhood.grading.reports.marks_text import SIGNS, marked_up, number
from mlhood.measure.machine import Machine

if TYPE_CHECKING:
    from mlhood.grading.execution.run import Run

NAMED = ("torch", "onnx", "onnxruntime", "numpy")

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --paper: #fff;
  --shade: #f6f8fa; --good: #1a7f37; --bad: #b3261e; --link: #0550ae; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9aa4af; --line: #3d444d;
  --paper: #0d1117; --shade: #161b22; --good: #4ac26b; --bad: #ff8f85; --link: #79b8ff; } }
* { box-sizing: border-box; }
body { font: 1rem/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto;
  max-width: 60rem; padding: 1.5rem 1rem 4rem; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; } h2 { margin: 2.5rem 0 .5rem; } h3 { margin: 1.75rem 0 .25rem; }
a { color: var(--link); } code { font-family: ui-monospace, monospace; font-size: .9em; }
.soft { color: var(--soft); } .sum { font-size: 1.15rem; font-weight: 600; }
table { border-collapse: collapse; width: 100%; }
caption { text-align: left; color: var(--soft); padding: .25rem 0; }
th, td { text-align: left; vertical-align: top; padding: .4rem .5rem; border-bottom: 1px solid var(--line); }
thead th { background: var(--shade); } tfoot th, tfoot td { border-bottom: 0; font-weight: 600; }
.points { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.bar { min-width: 5rem; width: 28%; }
.bar div { border: 1px solid var(--soft); height: .9rem; margin-top: .3rem; }
.bar span { display: block; height: 100%; background: var(--soft); }
.state { white-space: nowrap; width: 6rem; } .failed .state { color: var(--bad); font-weight: 600; }
.passed .state { color: var(--good); }
dl { margin: .25rem 0 0; display: grid; grid-template-columns: max-content 1fr; gap: 0 .6rem;
  font-size: .92rem; }
dt { color: var(--soft); } dd { margin: 0; min-width: 0; overflow-wrap: anywhere; }
.alert { border-left: 4px solid var(--bad); background: var(--shade); padding: .5rem .75rem;
  white-space: pre-wrap; }
tbody th, tfoot th { width: 6rem; }
@media (max-width: 34rem) { .bar { display: none; } th, td { padding: .35rem .25rem; }
  .state, tbody th, tfoot th { width: auto; } }
@media print { body { max-width: none; padding: 0; } h3, tr { break-inside: avoid; }
  h3 { break-after: avoid; }
  .bar span { print-color-adjust: exact; } }
"""

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="mlhood">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>Machine Learning under the hood: report</h1>
<p class="sum">{summary}</p>
<p class="soft">{machine}</p>
</header>
<main>
{body}
</main>
</body>
</html>
"""


def report_html(runs: Iterable[Run], out: Path, facts: Machine) -> str:
    """The page about these runs; links are relative to `out`."""
    runs = list(runs)
    marks = [run.marks for run in runs if run.marks]
    summary = _sum(sum(mark.earned for mark in marks), sum(mark.points for mark in marks))
    body = "\n".join(_notebook(run, out) for run in runs)
    libraries = ", ".join(f"{name} {facts.versions[name]}" for name in NAMED if facts.versions.get(name))
    where = f"Made on {facts}; {facts.system}, {facts.python}, {libraries}."
    return PAGE.format(title=f"Report: {summary}", style=STYLE, summary=summary, machine=escape(where), body=body)


def _sum(earned: float, points: float) -> str:
    return f"{number(earned)} of {number(points)} points"


def _notebook(run: Run, out: Path) -> str:
    title = f"{run.name}: {run.project.title}" if run.project else run.name
    parts = [
        f'<section aria-labelledby="{_anchor(run.name)}">',
        f'<h2 id="{_anchor(run.name)}">{escape(title)}</h2>',
    ]
    if run.error:
        parts.append(f'<p class="alert">{escape(str(run.error))}</p>')
    if run.interrupted:
        parts.append('<p class="alert">Stopped before its end: tasks that are not listed were not reached.</p>')
    parts += [f'<p class="alert">A cell stopped with an error. {marked_up(cell)}</p>' for cell in run.failed_cells]
    parts += [f"<p>Note: {escape(note)}.</p>" for note in run.notes]
    if run.marks:
        parts += [_overview(run.name, run.marks), _links(run, out)]
        parts += [_task(task) for task in run.marks.tasks]
        parts.append(_questions(run))
    return "\n".join([*filter(None, parts), "</section>"])


def _overview(name: str, marks: Marks) -> str:
    rows = "".join(
        f'<tr><th scope="row"><a href="#{_anchor(task.id)}">{escape(task.id)}</a></th>'
        f"<td>{escape(task.title)}</td>{_bar(task.earned, task.points)}"
        f'<td class="points">{_of(task.earned, task.points)}</td></tr>'
        for task in marks.tasks
    )
    skipped = ""
    if marks.skipped:
        points = f"{number(marks.skipped)} points"
        skipped = f"<p>{points} could not be asked for on this machine: see the skipped checks.</p>"
    return (
        f"<table><caption>Points of {escape(name)} by task, in {marks.seconds:.0f} seconds</caption>"
        '<thead><tr><th scope="col">Task</th><th scope="col">What</th><th scope="col" class="bar">Share</th>'
        f'<th scope="col" class="points">Points</th></tr></thead><tbody>{rows}</tbody>'
        f'<tfoot><tr><th scope="row">All</th><td></td>{_bar(marks.earned, marks.points)}'
        f'<td class="points">{_of(marks.earned, marks.points)}</td></tr></tfoot></table>{skipped}'
    )


def _bar(earned: float, points: float) -> str:
    share = 100 * earned / points if points else 0
    return f'<td class="bar"><div aria-hidden="true"><span style="width:{share:.0f}%"></span></div></td>'


def _of(earned: float, points: float) -> str:
    return f"{number(earned)} of {number(points)}"


def _task(task: TaskResult) -> str:
    heading = f"{task.id} {task.title}: {_sum(task.earned, task.points)}"
    notes = "".join(f"<p>Note: {marked_up(note)}</p>" for note in task.notes)
    rows = "".join(_check(check) for check in task.checks)
    return (
        f'<h3 id="{_anchor(task.id)}">{escape(heading)}</h3>{notes}<table><thead><tr>'
        '<th scope="col" class="state">Result</th><th scope="col">Check</th>'
        '<th scope="col" class="points">Points</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def _check(check: CheckResult) -> str:
    reason = f"<br>{marked_up(check.what)}" if check.what else ""
    parts = "".join(f"<dt>{escape(label)}</dt><dd>{marked_up(part)}</dd>" for label, part in check.parts.items())
    points = "not counted" if check.status == "skipped" else _of(check.earned, check.points)
    return (
        f'<tr class="{check.status}"><td class="state">{SIGNS[check.status]} {check.status}</td>'
        f"<td>{marked_up(check.title)}{reason}{f'<dl>{parts}</dl>' if parts else ''}</td>"
        f'<td class="points">{points}</td></tr>'
    )


def _links(run: Run, out: Path) -> str:
    if run.folder is None:
        return ""
    base = run.folder.relative_to(out)
    names = {
        f"{run.name}.html": "the executed notebook as a page",
        f"{run.name}.ipynb": "the executed notebook",
    }
    found = [path.as_posix() for path in files(run.folder)]
    items = [
        f'<li><a href="{quote((base / name).as_posix())}">{escape(name)}</a>{_about(names.get(name))}</li>'
        for name in sorted(found, key=lambda name: (name not in names, name))
    ]
    return f"<p>Written by this run into <code>{escape(str(run.folder))}</code>:</p><ul>{''.join(items)}</ul>"


def _about(text: str | None) -> str:
    return f" ({text})" if text else ""


def _questions(run: Run) -> str:
    if run.project is None or not run.project.questions:
        return ""
    names = "; ".join(f"{question.id} {question.title}" for question in run.project.questions)
    return f'<p class="soft">Written questions, marked by hand for bonus points: {escape(names)}</p>'


def _anchor(name: str) -> str:
    return quote(name.replace(" ", "-"), safe="-_")
