from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from mlhood.grading.checks.marks import judge
from mlhood.grading.checks.references import Leaning
from mlhood.grading.checks.submission import LocalTransport, Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.execution.grade_notebook import grade
from mlhood.grading.rpc.call_recorder import noting

FORBIDDEN = ("torch.nn.functional.unfold", "mlhood.kernels")


def found(*cells: str, asked: str = "im2col", forbidden: tuple[str, ...] = FORBIDDEN):
    leaning = Leaning()
    for cell in cells:
        leaning.read(cell)
    use = leaning.find([asked], forbidden)
    return None if use is None else use.name


UNFOLD = FORBIDDEN[0]


@pytest.mark.parametrize(
    "cells",
    [
        ["import torch", "def im2col(x):\n    return torch.nn.functional.unfold(x)"],
        ["import torch.nn.functional as F\ndef im2col(x):\n    return F.unfold(x)"],
        ["from torch.nn import functional as F", "im2col = lambda x: F.unfold(x)"],
        ["from torch.nn.functional import unfold as u", "def im2col(x):\n    return list(map(u, x))"],
        ["from torch.nn.functional import unfold as im2col"],
        ["from torch.nn.functional import *\ndef im2col(x):\n    return unfold(x)"],
        ["import torch\nim2col = torch.nn.functional.unfold"],
        ["import torch\nglobals()['im2col'] = torch.nn.functional.unfold"],
        ["import torch\nF = torch.nn.functional\ndef im2col(x):\n    return F.unfold(x)"],
        ["def im2col(x):\n    import torch.nn.functional as F\n    return F.unfold(x)"],
        ["def im2col(x):\n    from torch.nn.functional import unfold\n    return unfold(x)"],
        ["import torch\ndef im2col(x):\n    return getattr(torch.nn.functional, 'un' + 'fold')(x)"],
        ["import torch\ndef im2col(x):\n    return vars(torch.nn.functional)['unfold'](x)"],
        ["import torch\ndef im2col(x):\n    return torch.nn.functional.__dict__['unfold'](x)"],
        ["import importlib\ndef im2col(x):\n    return importlib.import_module('torch.nn.functional').unfold(x)"],
        ["from importlib import import_module as m\ndef im2col(x):\n    return m('torch.nn.functional').unfold(x)"],
        ["def im2col(x):\n    return __import__('torch.nn').nn.functional.unfold(x)"],
        ["import sys\ndef im2col(x):\n    return sys.modules['torch'].nn.functional.unfold(x)"],
        ["import torch\ndef im2col(x, f=torch.nn.functional.unfold):\n    return f(x)"],
        ["import torch\nclass Own:\n    f = torch.nn.functional.unfold", "def im2col(x):\n    return Own.f(x)"],
        [
            "import torch",
            "def help(x):\n    return torch.nn.functional.unfold(x)",
            "def im2col(x):\n    return help(x)",
        ],
        ["%%time\nimport torch\ndef im2col(x):\n    return torch.nn.functional.unfold(x)"],
        ["exec('import torch\\ndef im2col(x): return torch.nn.functional.unfold(x)')"],
        ["%matplotlib inline\nimport torch\nif True:\n    def im2col(x):\n        y = torch.nn.functional.unfold(x)"],
        ["def im2col(x):\n    return x", "import torch\nim2col, y = torch.nn.functional.unfold, 3"],
    ],
)
def test_a_use_is_found_however_it_is_written(cells):
    assert found(*cells) == UNFOLD


@pytest.mark.parametrize(
    "cells",
    [
        ["def im2col(x):\n    return x"],
        ["import torch\ndef im2col(x):\n    return torch.nn.functional.pad(x)"],
        ["from torch.nn.functional import unfold", "def im2col(x):\n    return x"],
        ["import torch\ndef im2col(x):\n    return x", "print(torch.nn.functional.unfold(im2col(3)))"],
        ["from torch.nn.functional import unfold\ndef unfold(x):\n    return x\ndef im2col(x):\n    return unfold(x)"],
        ["from torch.nn.functional import unfold\ndef im2col(unfold):\n    return unfold"],
        ["import torch\ndef im2col(x):\n    return torch.nn.functional.unfold(x)", "def im2col(x):\n    return x"],
        ["import torch\ndef other(x):\n    return torch.nn.functional.unfold(x)\ndef im2col(x):\n    return x"],
        ["import torch\ndef im2col(x: torch.nn.functional.unfold):\n    return x"],
        ["def im2col(x):\n    return '''torch.nn.functional.unfold'''"],
        ["def im2col(x:\n    return torch.nn.functional.unfold(x)"],
        ["import torch\ndef im2col(x):\n    return torch.nn.functional.unfold_it(x)"],
        ["(" * 5000],
    ],
)
def test_what_is_no_use_is_not_found(cells):
    assert found(*cells) is None


def test_a_module_means_all_that_is_in_it():
    assert found("from mlhood.kernels import conv\ndef im2col(x):\n    return conv.im2col(x)") == "mlhood.kernels"
    assert found("import mlhood\ndef im2col(x):\n    return mlhood.kernels.GEMM['blas']") == "mlhood.kernels"


def test_given_cells_may_lean_on_anything_and_their_names_still_count():
    leaning = Leaning()
    leaning.read("from torch.nn.functional import unfold as u\ndef given(x):\n    return u(x)", trusted=True)
    leaning.read("def im2col(x):\n    return given(x)\ndef other(x):\n    return u(x)")
    assert leaning.find(["im2col"], FORBIDDEN) is None
    use = leaning.find(["other"], FORBIDDEN)
    assert use is not None
    assert use.line == "return u(x)"


# -- calls


def calls_of(source: str, *names: str, namespace=None) -> set[str]:
    inside: dict = {} if namespace is None else namespace
    exec(source, inside)
    with noting(names, inside) as used:
        inside["run"]()
    return used


BY_NAME = "from torch.nn.functional import relu\nimport torch\ndef run():\n    return relu(torch.zeros(1))"


def test_calls_from_the_notebook_are_noted_and_work():
    inside: dict = {}
    assert calls_of(BY_NAME, "torch.nn.functional.relu", namespace=inside) == {"torch.nn.functional.relu"}
    assert inside["relu"] is torch.nn.functional.relu
    source = "import torch\ndef run():\n    return getattr(torch, 'n' + 'n').functional.relu(torch.zeros(1))"
    assert calls_of(source, "torch.nn.functional.relu") == {"torch.nn.functional.relu"}


def test_a_module_that_is_named_means_its_functions():
    source = (
        "import scipy.signal\nimport numpy as np\ndef run():\n    return scipy.signal.convolve(np.ones(3), np.ones(2))"
    )
    assert calls_of(source, "scipy.signal") == {"scipy.signal"}


def test_calls_of_others_are_not_noted():
    source = "import torch\nmodel = torch.nn.ReLU()\ndef run():\n    return model(torch.zeros(1))"
    assert calls_of(source, "torch.nn.functional.relu") == set()  # torch itself calls it


def test_everything_is_put_back_and_what_is_missing_is_passed_over():
    before = torch.nn.functional.relu
    with pytest.raises(ZeroDivisionError):
        calls_of("def run():\n    1 / 0", "torch.nn.functional.relu", "no.such.module", "torch.nn.functional.nothing")
    assert torch.nn.functional.relu is before
    assert "no.such.module" not in sys.modules


# -- judged


@points(3)
def doubles(submission):
    """`double` doubles."""
    assert submission.call("double", 3) == 6


@points(4)
def rectifies(submission):
    """`positive` rectifies."""
    got = submission.once("got", lambda: submission.call("positive", np.array([-1.0, 2.0])))
    assert got.tolist() == [0, 2]


@points(5)
def rectifies_again(submission):
    """`positive` rectifies, from memory."""
    rectifies.function(submission)


TASK = Task("T9.1", "Two functions", (doubles, rectifies, rectifies_again), forbidden=("torch.nn.functional.relu",))
CELL = """
import torch
def double(x):
    return 2 * x
def positive(x):
    return {}(torch.from_numpy(x))
"""


def judged(cell: str, tmp_path, *, read: bool):
    names: dict = {}
    exec(cell, names)
    submission = Submission(LocalTransport(names), tmp_path, tmp_path)
    if read:
        submission.leaning.read(cell)
    return judge(TASK, submission, 5)


def test_leaning_costs_the_checks_of_the_functions_that_lean(tmp_path):
    result = judged(CELL.format("torch.nn.functional.relu"), tmp_path, read=True)
    assert [check.status for check in result.checks] == ["passed", "failed", "failed"]
    assert result.checks[1].what == "the solution leans on `torch.nn.functional.relu`"
    assert "torch.nn.functional.relu(torch.from_numpy(x))" in result.checks[1].parts["got"]


def test_what_the_source_hides_is_noted_when_it_is_called(tmp_path):
    hidden = "getattr(torch.nn.functional, ''.join(['re', 'lu']))"
    result = judged(CELL.format(hidden), tmp_path, read=True)
    assert [check.status for check in result.checks] == ["passed", "failed", "failed"]
    assert "was called" in result.checks[1].parts["got"]


def test_other_ways_lose_nothing(tmp_path):
    result = judged(CELL.format("torch.relu"), tmp_path, read=True)
    assert result.earned == 12


LEANS = "import operator\ndef double(x):\n    return operator.add(x, x)"
HIDES = "import operator\nplus = vars(operator)['d'.join('a d'.split())]\ndef double(x):\n    return plus(x, x)"


@pytest.mark.parametrize(("cell", "sign"), [(LEANS, "the line `return operator.add(x, x)`"), (HIDES, "was called")])
def test_a_notebook_that_leans_loses_its_points_in_a_process_of_its_own(cell, sign, course, tmp_path):
    first, *others = course.SYNTHETIC.tasks
    project = replace(course.SYNTHETIC, tasks=(replace(first, forbidden=("operator.add",)), *others))
    marks = grade(course.notebook({**course.SOLUTIONS, "T9.1": cell}), project, tmp_path)
    assert [task.earned for task in marks.tasks] == [0, 20, 20]
    assert all(sign in check.parts["got"] for check in marks.tasks[0].checks)


def test_who_calls_a_stand_in_leans_on_nothing():
    leaning = Leaning()
    leaning.read("from mlhood.grading.projects.p3.reference import columns as im2col", trusted=True)
    leaning.read("def conv_blas(x):\n    return im2col(x)")
    assert leaning.find(["conv_blas"], ["mlhood.grading", "mlhood.kernels"]) is None
    leaning.read("from mlhood.grading.projects.p3.reference import columns as im2col")
    leaning.read("def conv_blas(x):\n    return im2col(x)")
    assert leaning.find(["conv_blas"], ["mlhood.grading"]).name == "mlhood.grading"
