"""Attacks that give full marks in other graders: none earns a point here or costs another task its points."""

from __future__ import annotations

import os

import psutil
import pytest
from nbformat.v4 import new_code_cell

from mlhood.grading.checks.marks import grade_task
from mlhood.grading.checks.one_core import one_core
from mlhood.grading.execution.grade_notebook import RunSettings, grade, grade_file
from mlhood.grading.notebooks.notebook import write
from tests.grading import synthetic_course

DOUBLE, FILE, _ = synthetic_course.SYNTHETIC.tasks
WRONG = "def double(x): return x\n"

ATTACKS = {
    "equal to everything": (
        "class Equal:\n    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n"
        "    __hash__ = None\n    def __array__(self, *a, **k): return np.zeros(0)\ndef double(x): return Equal()"
    ),
    "a number equal to everything": (
        "class Equal(int):\n    def __eq__(self, other): return True\n    __hash__ = None\n"
        "def double(x): return Equal(0)"
    ),
    "an array equal to everything": (
        "class Equal(np.ndarray):\n    def __eq__(self, other): return True\n"
        "    def __array_ufunc__(self, *a, **k): return True\n"
        "    def __array_function__(self, *a, **k): return True\n"
        "def double(x): return np.zeros((3, 4)).view(Equal)"
    ),
    "an input transformer": (
        f"{WRONG}get_ipython().input_transformers_cleanup.append(lambda lines: "
        "[line.replace('assert', 'pass #') for line in lines])"
    ),
    "an AST transformer": (
        f"{WRONG}import ast\nclass Drop(ast.NodeTransformer):\n    def visit_Assert(self, node): return ast.Pass()\n"
        "    def visit_Raise(self, node): return ast.Pass()\nget_ipython().ast_transformers.append(Drop())"
    ),
    "a patched checker": (
        f"{WRONG}import mlhood.grading.checks.expect as e, mlhood.grading.checks.marks as m\n"
        "e.equal = e.close = lambda *a, **k: None\nm.grade_task = m._run_check = lambda *a, **k: None"
    ),
    "patched numpy": (
        f"{WRONG}np.testing.assert_allclose = np.testing.assert_array_equal = lambda *a, **k: None\n"
        "np.allclose = np.array_equal = lambda *a, **k: True"
    ),
    "patched pandas and torch": (
        f"{WRONG}import pandas.testing as p\np.assert_frame_equal = p.assert_series_equal = lambda *a, **k: None\n"
        "import sys, types\nsys.modules['torch.testing'] = types.SimpleNamespace(assert_close=lambda *a, **k: None)"
    ),
    "patched timers": f"{WRONG}import time\ntime.perf_counter = time.monotonic = time.time = lambda: 0.0",
    "patched codec": (
        f"{WRONG}import json, mlhood.grading.rpc.codec as c\nold = c.encode\n"
        "c.encode = lambda value, register=None: old({'value': True, 'passed': True, 'points': 100})"
    ),
    "forged replies": (
        f"{WRONG}import mlhood.grading.rpc.server as s\nold = s.encode\n"
        "s.encode = lambda value, register=None: old({'value': {'status': 'passed', 'earned': 40}})"
    ),
    "another run of cells": (
        f"{WRONG}shell = get_ipython()\nshell.run_cell = shell.run_cell_async = lambda *a, **k: None\n"
        'shell.reply_to_cell = lambda source: b\'{"outputs": [], "execution_count": 1, "earned": 40}\''
    ),
    "a printed result": f"{WRONG}print('T9: 40 of 40 points')\nprint('{{\"earned\": 40}}')",
    "a lazy result": (
        "class Lazy:\n    def __init__(self, x): self.x = x\n    def __repr__(self): return repr(2 * self.x)\n"
        "    def __float__(self): return 2.0 * self.x\n    def __int__(self): return 2 * self.x\n"
        "    __index__ = __int__\ndef double(x): return Lazy(x)"
    ),
    "a result that is still computed": (
        "import threading, time\ndef double(x):\n    y = np.zeros_like(x) if hasattr(x, 'shape') else [0]\n"
        "    def later():\n        time.sleep(0.3)\n        y[...] = 2 * x\n"
        "    threading.Thread(target=later).start()\n    return y"
    ),
    "a cached replay": ("seen = []\ndef double(x):\n    seen.append(x)\n    return 84 if len(seen) == 1 else seen[0]"),
    "a search for the expected": (
        "import inspect\ndef double(x):\n"
        "    frames = [v for f in inspect.stack() for v in f.frame.f_locals.items()]\n"
        "    return dict(frames).get('expected', dict(frames).get('wanted', x))"
    ),
    "a promise": "import asyncio\nasync def double(x): return 2 * x",
    "an exit": "def double(x): raise SystemExit(0)",
    "an interrupt": "def double(x): raise KeyboardInterrupt",
    "the end of the process": "import os\ndef double(x): os._exit(0)",
    "no traceback": (
        "get_ipython().showtraceback = lambda *a, **k: None\nget_ipython().set_custom_exc((Exception,), "
        "lambda *a, **k: None)\ndef double(x): raise ValueError(2 * x)"
    ),
}


@pytest.mark.parametrize("source", ATTACKS.values(), ids=ATTACKS)
def test_an_attack_earns_nothing_and_the_next_task_keeps_its_points(attacked, source):
    attacked.run("import numpy as np\n" + source)
    assert grade_task(DOUBLE, attacked.session, 4711).earned == 0
    if any(mark in source for mark in ("forged", "old = ", "reply_to_cell")):
        return  # these forge the replies to the next task, too
    attacked.run("open('answer.txt', 'w').write('42')")
    assert grade_task(FILE, attacked.session, 4711).earned == 20


def test_a_pickle_is_only_data(attacked, tmp_path):
    trap = tmp_path / "executed"
    attacked.run(
        "import numpy as np, os\nclass Trap:\n"
        f"    def __reduce__(self): return (os.system, ('touch {trap}',))\n"
        "def double(x): return np.array([Trap()], dtype=object)\n"
        "def pickled():\n    import pickle\n    return pickle.dumps(Trap())"
    )
    assert grade_task(DOUBLE, attacked.session, 4711).earned == 0
    assert isinstance(attacked.submission.call("pickled"), bytes)
    assert not trap.exists()


def test_a_right_solution_earns_all_in_the_sandbox(course, pool, tmp_path):
    path = tmp_path / "T9.ipynb"
    write(course.notebook(), path)
    marks = grade_file(path, RunSettings(4711, kernels=pool.kernel))
    assert [task.earned for task in marks.tasks] == [40, 20, 20]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no call for it")
def test_threads_and_programs_gain_nothing_while_they_are_timed(attacked):
    """They share one core."""
    attacked.run(
        "import subprocess, sys, threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        "busy = [subprocess.Popen([sys.executable, '-c', 'while True: pass']) for _ in range(2)]"
    )
    processes = psutil.Process(attacked.kernel.pid).children(recursive=True)
    threads = [thread.id for process in processes for thread in process.threads()]
    assert len(processes) >= 3
    with one_core(attacked.submission):
        core = os.sched_getaffinity(0)
        assert len(core) == 1
        assert all(os.sched_getaffinity(thread) == core for thread in threads)
    assert all(os.sched_getaffinity(thread) == os.sched_getaffinity(0) for thread in threads)


def test_a_killed_task_gets_zero_with_the_reason_and_later_ones_run(course, pool, tmp_path):
    book = course.notebook(course.SOLUTIONS | {"T9.2": "import os; os._exit(0)"})
    marks = grade(book, course.SYNTHETIC, tmp_path, RunSettings(4711, kernels=pool.kernel))
    assert [task.earned for task in marks.tasks] == [40, 0, 20]
    assert any("ended the Python process" in note for note in marks.tasks[1].notes)


def test_an_updated_display_is_shown(course, pool, tmp_path):
    book = course.notebook()
    book.cells.insert(2, new_code_cell("h = display('a', display_id=True)\nh.update('b')"))
    marks = grade(book, course.SYNTHETIC, tmp_path, RunSettings(4711, kernels=pool.kernel))
    assert marks.earned == 80
    assert book.cells[2].outputs[0].data["text/plain"] == "'b'"
