"""Wrong solutions that would earn points by what the source of their functions does not show: each is held."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlhood.grading.execution.grade_notebook import RunSettings, grade

WRONG = "def double(x): return x"
# T9.1 forbids `operator.mul`, and each of these uses it; or they change what the judge's requests reach
HIDDEN = "import operator\n"
ATTACKS = {
    "source that is executed": HIDDEN + "exec('def double(x): return operator.' + 'mul(x, 2)')",
    "a name that is set": HIDDEN + "globals().update(double=lambda x: operator.mul(x, 2))",
    "a module's dictionary": HIDDEN + "def double(x): return vars(operator)['m' + 'ul'](x, 2)",
    "a name that is put together": HIDDEN + "def double(x): return getattr(operator, 'm' + str('ul'))(x, 2)",
    "the table of modules": "import sys\ndef double(x): return sys.modules['operator'].mul(x, 2)",
    "a module by its name": "import importlib\ndef double(x): return importlib.import_module('operator').mul(x, 2)",
    "a built-in's own module": "def double(x): return print.__self__.__import__('operator').mul(x, 2)",
    "the interpreter's frames": (
        "import sys\ndef double(x): return sys._getframe(0).f_builtins['__import__']('operator').mul(x, 2)"
    ),
    "code that is exchanged": HIDDEN
    + "def double(x): return x\ndouble.__code__ = (lambda x: operator.mul(x, 2)).__code__",
    "a class that is found": HIDDEN
    + "def double(x): return [c for c in object.__subclasses__()] and operator.add(x, x)",
    "a magic of one's own": (
        HIDDEN + "get_ipython().register_magic_function(lambda line, cell: get_ipython().ex(cell), 'cell', 'own')\n"
        "get_ipython().run_cell_magic('own', '', 'def double(x): return operator.mul(x, 2)')"
    ),
    "an input transformer": (
        "def swap(lines): return [line.replace('plus', 'mul') for line in lines]\n"
        "get_ipython().input_transformers_cleanup.append(swap)\n" + HIDDEN + "def double(x): return operator.add(x, x)"
    ),
    "a cell that is too deep to be read": (
        "import sys\nsys.setrecursionlimit(10**6)\n" + HIDDEN + "def double(x): return operator.mul(x, 2)\n"
        "def deep(): return " + "-" * 20_000 + "1"
    ),
    "a library that is changed": (
        "import numpy as np\ndef swap(m): m.asarray = m.array\nswap(np)\ndef double(x): return x + x"
    ),
    "a file that is run": (
        "open('mine.py', 'w').write('import operator\\ndef double(x): return operator.mul(x, 2)')\n%run mine.py"
    ),
    "a file that is imported": (
        "open('mine.py', 'w').write('import operator\\ndef double(x): return operator.mul(x, 2)')\n"
        "from mine import double"
    ),
    "a library of one's own": "import subprocess\ndef double(x): return x + x",
    "raw memory": "import ctypes\ndef double(x): return x + x",
    "the grading": "import mlhood.grading.rpc.server as s\ndef double(x): return x + x",
    "an annotation that runs": "def f(x: exec('import os')): return x\ndef double(x): return x + x",
    "a pattern that takes attributes": (
        HIDDEN
        + "def double(x):\n    match operator.add:\n        case object(__self__=module): return module.mul(x, 2)"
    ),
    "an attribute by a path": HIDDEN + "def double(x): return operator.attrgetter('m' + 'ul'[:])(operator)(x, 2)",
    "an attribute getter that is passed on": (
        "import functools, operator as o\ndef double(x): return functools.reduce(getattr, ['mul'], o)(x, 2)"
    ),
}


@pytest.mark.parametrize("source", ATTACKS.values(), ids=ATTACKS)
def test_what_cannot_be_read_earns_nothing_by_itself(course, pool, tmp_path, source):
    first, *others = course.SYNTHETIC.tasks
    project = replace(course.SYNTHETIC, tasks=(replace(first, forbidden=("operator.mul",)), *others))
    book = course.notebook(course.SOLUTIONS | {"T9.1": source})
    marks = grade(book, project, tmp_path, RunSettings(4711, kernels=pool))
    task = marks.tasks[0]
    assert task.earned == 0
    assert not task.provisional or "cannot be marked automatically because" in task.held


FORBIDDEN = {
    "an alias of an alias": "import operator as o\nf = g = o.mul\nf = f\ndef double(x): return f(x, 2)",
    "a definition that never runs": (
        "from operator import mul as double_\ndef double(x): return double_(x, 2)\nif 0:\n    double_ = None"
    ),
    "a definition after an error": (
        "import operator\ndouble = lambda x: operator.mul(x, 2)\n1 / 0\ndef double(x): return x + x"
    ),
    "an attribute of a function": (
        "import operator\ndef double(x): return double.f(x, 2)\ndef hide(a, b): a.f = b\nhide(double, operator.mul)"
    ),
    "a container": "import operator\ntools = []\ntools.append(operator.mul)\ndef double(x): return tools[0](x, 2)",
}


@pytest.mark.parametrize("source", FORBIDDEN.values(), ids=FORBIDDEN)
def test_a_forbidden_function_is_found_however_it_gets_there(course, pool, tmp_path, source):
    first, *others = course.SYNTHETIC.tasks
    project = replace(course.SYNTHETIC, tasks=(replace(first, forbidden=("operator.mul",)), *others))
    marks = grade(course.notebook(course.SOLUTIONS | {"T9.1": source}), project, tmp_path, RunSettings(1, kernels=pool))
    assert marks.tasks[0].earned == 0
    assert "`operator.mul`" in marks.tasks[0].checks[0].what
    assert [task.earned for task in marks.tasks[1:]] == [20, 20]


def test_the_memory_of_a_process_is_closed(shared):
    assert shared.eval("open('/proc/self/mem', 'r+b')") == "PermissionError"
    assert shared.eval("open('/proc/self/status').readline()[:4]") == "Name"


def test_a_file_replaces_no_library(shared):
    shared.run("from pathlib import Path\nPath('wave.py').write_text('x = 1')\nPath('mine.py').write_text('x = 1')")
    assert shared.eval("__import__('wave').__name__ and hasattr(__import__('wave'), 'x')") == "False"
    assert shared.eval("__import__('mine').x") == "1"


def test_a_library_imports_no_file_of_the_student(shared):
    """Code that a library imports by a name which it is given was read by nobody."""
    shared.run("from pathlib import Path\nfrom matplotlib.backends.registry import backend_registry")
    shared.run("for name in ('mine', 'other'): Path(f'{name}.py').write_text('x = 1')")
    assert shared.eval("__import__('mine').x") == "1"
    assert shared.eval("backend_registry.load_backend_module('module://other')") == "ModuleNotFoundError"


def test_a_pickle_holds_data_only(shared):
    shared.run("import functools, operator, pickle\nimport numpy as np\nclass A: pass")
    assert shared.eval("pickle.loads(pickle.dumps((np.arange(3), A(), {1}, range(2), operator.mul)))[0].sum()") == "3"
    for function in ("exec", "getattr", "operator.attrgetter", "np.testing.runstring", "__import__('os').system"):
        assert shared.eval(f"pickle.loads(pickle.dumps({function}))") == "PermissionError"
