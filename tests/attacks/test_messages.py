"""Hostile messages on Jupyter's own channels end their cell at most, and take a limited amount of memory."""

from __future__ import annotations

import pytest
from nbformat.v4 import new_code_cell

from mlhood.grading.checks.marks import grade_task
from mlhood.grading.execution.grade_notebook import RunSettings, grade
from mlhood.grading.reports import marks_text
from mlhood.grading.sandbox import kernel as kernels
from tests.attacks.attacked import LIMIT, SECRET, TASK

# signed with the kernel's key, which the kernel's process has to know
SEND = """
import json
kernel = get_ipython().kernel
def send(kind='stream', content={'name': 'stdout', 'text': 'forged'}, parent=None, header=None, times=1,
         metadata={}, extra=(), signature=None, socket=None, route=False, ascii=True):
    header = header or kernel.session.msg_header(kind)
    parts = [header, parent or kernel.get_parent()['header'], metadata, content]
    frames = [part if isinstance(part, bytes) else json.dumps(part, default=str, ensure_ascii=ascii).encode()
              for part in parts]
    ids = kernel._parent_ident['shell'] if route else [b'x']
    signed = [b'<IDS|MSG>', signature or kernel.session.sign(frames), *frames, *extra]
    for _ in range(times):
        (socket or kernel.iopub_socket).send_multipart([*ids, *signed])
"""
BROKEN = {
    "the same message twice": "send(times=2)",
    "a message of no kind": "send(header={'msg_id': 'a'})",
    "a list for a content": "send(content=[1])",
    "a list for a parent": "send(parent=[1])",
    "depth": "send(content=b'[' * 200_000)",
    "no message": "kernel.iopub_socket.send_multipart([b'x'])",
}


@pytest.mark.parametrize("source", BROKEN.values(), ids=BROKEN)
def test_an_invalid_message_ends_only_its_cell(attacked, source):
    attacked.run(SEND)
    outcome = attacked.run(source)
    assert outcome.error.startswith("sent an invalid Jupyter message")
    assert not outcome.alive
    assert attacked.graded().earned == 1


STRANGE = {
    "an output": "send()",
    "the end of the cell before its end": "send('status', {'execution_state': 'idle'})",
    "an unknown kind": "send('nonsense', {})",
    "a number of the cell": "send('execute_input', {'execution_count': 'x', 'code': 5})",
    "widgets": "send('comm_open', {'comm_id': 'a', 'target_name': 'jupyter.widget', 'data': {'state': 5}})\n"
    "send('comm_msg', {'comm_id': 'a', 'data': 5})\nsend('comm_close', {})",
    "a table of points": "send('display_data', {'data': {'application/vnd.mlhood.table+json': {'passed': True}},"
    " 'metadata': {'mlhood': {'earned': 100}}, 'transient': {'display_id': 'T9.1'}})",
}


def test_forged_messages_are_outputs_and_nothing_else(shared):
    shared.run(SEND)
    for source in STRANGE.values():
        outcome = shared.run(source)
        assert outcome.error == ""
        assert outcome.alive
    shared.run("def f(): return 2")
    shared.run("\n".join(STRANGE.values()))
    assert shared.graded().earned == 0
    shared.run("def f(): return 1")
    assert shared.graded().earned == 1


def test_the_outputs_of_all_cells_together_are_limited(shared, monkeypatch):
    monkeypatch.setattr(kernels, "MAX_OUTPUT_BYTES", shared.kernel._output_bytes + (3 << 20))
    cells = [new_code_cell(f"print('{n}' * (900 << 10))") for n in range(5)]
    assert all(shared.kernel.run(cell, LIMIT).alive for cell in cells)
    assert [len(cell.outputs[0].text) > 800_000 for cell in cells] == [True, True, True, False, False]
    assert "is omitted" in cells[-1].outputs[0].text
    assert shared.graded().earned == 1


def test_no_state_of_widgets_is_kept(shared):
    state = "{'comm_id': str(n), 'target_name': 'jupyter.widget', 'data': {'state': {'x': 'x' * 90_000}}}"
    outcome = shared.run(f"{SEND}\nfor n in range(9): send('comm_open', {state})")
    assert outcome.error == ""
    assert not shared.kernel._client.widget_state
    assert not shared.kernel._client.comm_objects


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
