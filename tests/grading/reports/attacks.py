"""A notebook and marks full of content that would run, load, escape from or hide parts of an unsafe page."""

from __future__ import annotations

import base64
import io

from nbformat import NotebookNode
from nbformat.v4 import new_output
from PIL import Image

from mlhood.grading.checks.marks import CheckResult, ManualMark, TaskResult
from mlhood.grading.gradebook.late import Lateness
from mlhood.grading.gradebook.project_spec import ProjectSpec, QuestionSpec
from mlhood.grading.gradebook.records import Record
from mlhood.grading.intake.collect import SubmittedFile
from mlhood.measure.table import MIME

SERVER = "http://127.0.0.1:9/stolen"  # no server; a request is observed before it is sent
RUN = "document.title='owned';window.owned=1"
HTML = [
    f"<script>{RUN}</script>",
    f'<img src=x onerror="{RUN}">',
    f"<img src='{SERVER}'>",
    f"<svg onload=\"{RUN}\"><script>{RUN}</script><image href='{SERVER}'/></svg>",
    f"<iframe srcdoc=\"<script>parent.{RUN}</script>\"></iframe><iframe src='{SERVER}'></iframe>",
    f'<a href="javascript:{RUN}" autofocus onfocus="{RUN}" tabindex=0>x</a>',
    f"<link rel=stylesheet href='{SERVER}'><style>@import '{SERVER}'; body {{ display: none }}</style>",
    f"<table background='{SERVER}' style=\"background:url('{SERVER}')\"><tr><td onclick=\"{RUN}\">k</td></tr></table>",
    f"<meta http-equiv=refresh content='0;url={SERVER}'><base href='{SERVER}'>",
    f"<form action='{SERVER}'><input autofocus onfocus=\"{RUN}\"><button formaction='{SERVER}'>hand in</button></form>",
    "</div></section></main></body></html><h1 class=sum>100 of 100 points</h1>",
    "</td></tr></table><table><tr class='passed'><td>✓ passed</td></tr></table>",
    f'<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror={RUN}&gt;">',
    f'<noscript><p title="</noscript><img src=x onerror={RUN}>"></noscript>',
    f'<svg></p><style><a id="</style><img src=1 onerror={RUN}>">',
    f'<template><script>{RUN}</script></template><details open ontoggle="{RUN}">x</details>',
    f"<object data='{SERVER}'></object><embed src='{SERVER}'><video src='{SERVER}' onerror=\"{RUN}\" autoplay></video>",
    "<!--><script>" + RUN + "</script>-->",
    f'<xmp><p title="</xmp><img src=x onerror={RUN}>">',
    "<table><tr><td colspan=1000000 rowspan=99999 id=P1-1 class=failed>wide</td></tr></table>",
]
TEXT = f"</pre></div><script>{RUN}</script>\x1b[31mred\x1b[0m \x00\u202egnp.exe <img src=x onerror={RUN}>"


def png(width: int = 4, height: int = 4) -> str:
    """Return a PNG in base64."""
    packed = io.BytesIO()
    Image.new("RGB", (width, height), "orange").save(packed, "PNG")
    return base64.b64encode(packed.getvalue()).decode()


def display(data: dict) -> NotebookNode:
    """Return an output in these formats."""
    return new_output("display_data", data)


def outputs() -> list[NotebookNode]:
    """Return one output per attack."""
    hostile = [display({"text/html": html, "text/plain": html}) for html in HTML]
    return [
        *hostile,
        new_output("stream", name="stderr", text=TEXT),
        new_output("error", ename=TEXT, evalue=TEXT, traceback=[TEXT]),
        display({"application/javascript": RUN, "text/plain": TEXT}),
        display({"image/svg+xml": f"<svg xmlns='http://www.w3.org/2000/svg' onload='{RUN}'/>"}),
        display({"image/png": f'x" onerror="{RUN}'}),
        display({"image/png": png()}),
        display({MIME: {"format": 1, "title": TEXT}, "text/html": HTML[0]}),
        display({"text/markdown": HTML[0], "text/latex": HTML[0]}),
        display({"application/vnd.jupyter.widget-view+json": {"model_id": RUN}}),
    ]


def record(project: str) -> Record:
    """Return a record in which every text contains an attack."""
    hostile = " ".join([TEXT, *HTML])
    check = CheckResult("c", TEXT, 5, "failed", TEXT, {TEXT: hostile, "got": f"`{HTML[0]}`", "hint": HTML[1]})
    task = TaskResult(f"{project}.1", TEXT, (check, CheckResult("d", "right", 5, "passed")), (TEXT,))
    question = QuestionSpec(f"{project}.4", TEXT, 5)
    spec = ProjectSpec(project, f"Double </title><script>{RUN}</script>", (), (question,), "")
    marks = {question.id: ManualMark(2, HTML[0])}
    return Record(SubmittedFile(TEXT, TEXT), spec, "refused", TEXT, (task,), Lateness(note=TEXT), marks)


def spread(notebook: NotebookNode, project: str) -> NotebookNode:
    """Spread the outputs over the cells of a notebook, as a page shows only a dozen of each, and return it."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    hostile = outputs()
    for cell in code:
        cell.metadata["mlhood"] = {"task": f"{project}.1", "role": "solution"}
        cell.metadata["name"] = cell.metadata["title"] = TEXT
        cell.source, cell.outputs, hostile = TEXT, hostile[:8], hostile[8:]
    notebook.metadata["title"] = notebook.metadata["authors"] = TEXT
    return notebook
