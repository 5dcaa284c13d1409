"""What a hostile notebook says to the grader by Jupyter's own channels: it ends its cell at most, and stays small."""

from __future__ import annotations

import pytest
from nbformat.v4 import new_code_cell

from mlhood.grading.checks.marks import judge
from mlhood.grading.reports import marks_text
from mlhood.grading.sandbox import kernel as kernels
from tests.attacks.attacked import SECRET, TASK

# signed with the kernel's key, which the kernel's process has to know
SEND = """
import json
kernel = get_ipython().kernel
def send(kind='stream', content={'name': 'stdout', 'text': 'forged'}, parent=None, header=None, times=1):
    header = header or kernel.session.msg_header(kind)
    parts = [header, parent or kernel.get_parent()['header'], {}, content]
    frames = [part if isinstance(part, bytes) else json.dumps(part, default=str).encode() for part in parts]
    for _ in range(times):
        kernel.iopub_socket.send_multipart([b'x', b'<IDS|MSG>', kernel.session.sign(frames), *frames])
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
def test_what_is_no_message_ends_its_cell_alone(attacked, source):
    attacked.run(SEND)
    outcome = attacked.run(source)
    assert outcome.error.startswith("sent what is no Jupyter message")
    assert not outcome.alive
    assert attacked.judged().earned == 1


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


def test_forged_messages_are_outputs_and_nothing_else(lasting):
    lasting.run(SEND)
    for source in STRANGE.values():
        outcome = lasting.run(source)
        assert outcome.error == ""
        assert outcome.alive
    lasting.run("def f(): return 2")
    lasting.run("\n".join(STRANGE.values()))
    assert lasting.judged().earned == 0
    lasting.run("def f(): return 1")
    assert lasting.judged().earned == 1


def test_outputs_of_all_cells_together_have_an_end(lasting, monkeypatch):
    monkeypatch.setattr(kernels, "MAX_OUTPUTS", lasting.kernel._shown + (3 << 20))
    cells = [new_code_cell(f"print('{n}' * (900 << 10))") for n in range(5)]
    assert all(lasting.kernel.run(cell, 10).alive for cell in cells)
    assert [len(cell.outputs[0].text) > 800_000 for cell in cells] == [True, True, True, False, False]
    assert "is left out" in cells[-1].outputs[0].text
    assert lasting.judged().earned == 1


def test_nothing_is_kept_of_widgets(lasting):
    state = "{'comm_id': str(n), 'target_name': 'jupyter.widget', 'data': {'state': {'x': 'x' * 90_000}}}"
    outcome = lasting.run(f"{SEND}\nfor n in range(9): send('comm_open', {state})")
    assert outcome.error == ""
    assert not lasting.kernel._client.widget_state
    assert not lasting.kernel._client.comm_objects


NAME = "type('\\x1b[2J\\u202e', (Exception,), {})"
STEERS = {
    "a type": f"def f(): return {NAME}()",
    "a missing name": "def f(): raise NameError('the notebook defines no \\x1b[2J\\nT9.1 f: 1 of 1 points')",
    "an error": f"def f(): raise {NAME}('\\x1b]0;owned\\x07\\r\\nT9.1 f: 1 of 1 points')",
}


@pytest.mark.parametrize("source", STEERS.values(), ids=STEERS)
def test_words_of_a_student_steer_no_terminal_and_forge_no_line(lasting, source):
    lasting.run(source)
    note = lasting.run("raise ValueError('\\x1b[2J\\nT9.1 f: 1 of 1 points\\u2028')").error
    result = judge(TASK, lasting.submission, 0, (note,))
    lasting.run("def f(): return 1")
    text = marks_text.task_text(result)
    assert result.earned == 0
    assert not set(text) & set("\x1b\x07\r\u202e\u2028")
    assert [line for line in text.splitlines() if line.startswith("T9.1 f: 1")] == []
    assert SECRET not in text


def test_an_error_of_megabytes_is_a_short_note(lasting):
    assert len(lasting.run("raise ValueError('x' * 200_000)").error) < 1000


def test_errors_of_a_thousand_cells_are_a_few_notes(course, sandboxes, tmp_path):
    from mlhood.grading.execution.grade_notebook import grade

    book = course.notebook()
    book.cells[3:3] = [new_code_cell("1 / 0") for _ in range(100)]
    marks = grade(book, course.SYNTHETIC, tmp_path, seed=4711, sandbox=sandboxes)
    assert marks.earned == 80
    assert len(marks.tasks[0].notes) < 25
