"""Hostile replies of the student's process end their cell at most, and are outputs and nothing else."""

from __future__ import annotations

import pytest
from nbformat.v4 import new_code_cell

from mlhood.grading.checks.marks import grade_task
from mlhood.grading.execution.grade_notebook import RunSettings, grade
from mlhood.grading.reports import marks_text
from mlhood.grading.sandbox import kernel as kernels
from tests.attacks.attacked import LIMIT, SECRET, TASK


def forging(attack: str) -> str:
    """A cell after which the next one sends what it likes: it has the pipe, and the number of the request."""
    return f"""
import json, struct, sys
def forged(source):
    frame = sys._getframe()
    while 'replies' not in frame.f_locals: frame = frame.f_back
    replies = frame.f_locals['replies']
    def send(text=b'', size=None, number=frame.f_locals['number']):
        replies.write(struct.pack('>QQ', len(text) if size is None else size, number) + text)
        replies.flush()
    {attack}
    return b'{{"execution_count": 1, "outputs": []}}'
get_ipython().reply_to_cell = forged
"""


BROKEN = {
    "the reply to another request": "send(number=7)",
    "a length of exabytes": "send(size=1 << 60)",
    "a length without bytes": "import os; send(size=10); os._exit(0)",
    "no JSON": "send(b'x')",
    "depth": "send(b'[' * 200_000)",
    "no outputs": "send(b'{}')",
    "an output of no kind": 'send(b\'{"execution_count": 1, "outputs": [{}]}\')',
    "an unknown kind": 'send(b\'{"execution_count": 1, "outputs": [{"output_type": "nonsense"}]}\')',
    "a text that is a number": 'send(b\'{"execution_count": 1, "outputs": [{"output_type": "stream", "name": "stdout",'
    ' "text": 5}]}\')',
}


@pytest.mark.parametrize("source", BROKEN.values(), ids=BROKEN)
def test_an_invalid_reply_ends_only_its_cell(attacked, source):
    attacked.run(forging(source))
    attacked.kernel._history.pop()
    outcome = attacked.run("1")
    assert outcome.error.startswith(("sent", "put out more than 16 MiB", "ended"))
    assert not outcome.alive
    assert attacked.graded().earned == 1


def test_a_reply_before_its_request_ends_the_process(attacked):
    """Else a call could be answered before it is timed."""
    attacked.run(forging('send(b\'{"execution_count": 1, "outputs": []}\')'))
    attacked.kernel._history.pop()
    assert attacked.run("1").alive
    assert attacked.graded().checks[0].status == "failed"
    assert attacked.graded().earned == 1


FORGED = """
import json
def forge(*outputs, count=1):
    text = json.dumps({'execution_count': count, 'outputs': outputs, 'earned': 100}).encode()
    get_ipython().reply_to_cell = lambda source: text
"""
STRANGE = {
    "no output": "forge()",
    "a number of the cell": "forge(count='x' * 10)",
    "a large number of the cell": "forge(count=1 << 60)",
    "a table of points": "forge({'output_type': 'display_data', 'data': {'application/vnd.mlhood.table+json':"
    " {'passed': True}}, 'metadata': {'mlhood': {'earned': 100}}})",
}


@pytest.mark.parametrize("source", STRANGE.values(), ids=STRANGE)
def test_forged_replies_are_outputs_and_nothing_else(attacked, source):
    attacked.run("def f(): return 2")
    attacked.run(FORGED + source)
    cell = new_code_cell("1")
    assert attacked.kernel.run(cell, LIMIT).alive
    assert cell.execution_count in (None, 1)
    assert attacked.graded().earned == 0


def test_the_outputs_of_all_cells_together_are_limited(shared, monkeypatch):
    monkeypatch.setattr(kernels, "MAX_OUTPUT_BYTES", shared.kernel._output_bytes + (3 << 20))
    cells = [new_code_cell(f"print('{n}' * (900 << 10))") for n in range(5)]
    assert all(shared.kernel.run(cell, LIMIT).alive for cell in cells)
    assert [len(cell.outputs[0].text) > 800_000 for cell in cells] == [True, True, True, False, False]
    assert "is omitted" in cells[-1].outputs[0].text
    assert shared.graded().earned == 1


NAME = "type('\\x1b[2J\\u202e', (Exception,), {})"
CONTROL = {
    "a type": f"def f(): return {NAME}()",
    "a missing name": "def f(): raise NameError('the notebook defines no \\x1b[2J\\nT9.1 f: 1 of 1 points')",
    "an error": f"def f(): raise {NAME}('\\x1b]0;owned\\x07\\r\\nT9.1 f: 1 of 1 points')",
}


@pytest.mark.parametrize("source", CONTROL.values(), ids=CONTROL)
def test_messages_of_a_student_neither_control_the_terminal_nor_forge_a_line(shared, source):
    shared.run(source)
    note = shared.run("raise ValueError('\\x1b[2J\\nT9.1 f: 1 of 1 points\\u2028')").error
    result = grade_task(TASK, shared.session, 0, (note,))
    shared.run("def f(): return 1")
    text = marks_text.task_text(result)
    assert result.earned == 0
    assert not set(text) & set("\x1b\x07\r\u202e\u2028")
    assert [line for line in text.splitlines() if line.startswith("T9.1 f: 1")] == []
    assert SECRET not in text


def test_an_error_of_megabytes_is_a_short_note(shared):
    assert len(shared.run("raise ValueError('x' * 200_000)").error) < 1000


def test_the_errors_of_many_cells_are_a_few_notes(course, pool, tmp_path):
    book = course.notebook()
    book.cells[3:3] = [new_code_cell("1 / 0") for _ in range(100)]
    marks = grade(book, course.SYNTHETIC, tmp_path, RunSettings(4711, kernels=pool.kernel))
    assert marks.earned == 80
    assert len(marks.tasks[0].notes) < 25
