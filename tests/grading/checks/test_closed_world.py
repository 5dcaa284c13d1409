from __future__ import annotations

import pytest

from mlhood.grading.checks.cell_source import read_cell
from mlhood.grading.checks.closed_world import ClosedWorld
from mlhood.grading.notebooks.restore import course_sources, fingerprint, restore
from mlhood.grading.projects import PROJECTS
from tests.grading.projects import p1_right, p2_right, p3_right, p4_right, p5_right
from tests.grading.projects.quick import quick_master


def findings(*cells: str) -> list[str]:
    world = ClosedWorld()
    for cell in cells:
        world.add_cell(read_cell(cell))
    return [str(finding) for finding in world.findings]


OUTSIDE = [
    "exec('x = 1')",
    "f = exec",
    "import builtins",
    "import sys\nsys.modules['numpy']",
    "import sys as s\ns._getframe()",
    "from sys import modules",
    "globals()['f'] = 1",
    "vars()['f']=1",
    "import numpy as np\nnp.matmul = print",
    "import numpy as np\ndel np.matmul",
    "import numpy as np\nsetattr(np,'matmul',print)",
    "import numpy as np\nn='matmul'\nsetattr(np,n,print)",
    "getattr(f,'__glo'+'bals__')",
    "f.__globals__['x']=1",
    "f.__code__ = g.__code__",
    "().__class__.__subclasses__()",
    "().__class__.__bases__",
    "import subprocess",
    "import ctypes",
    "import gc\ngc.get_objects()",
    "import inspect\ninspect.stack()",
    "import mlhood.grading.checks.expect as e",
    "from mlhood import grading",
    "import importlib\nimportlib.import_module('x')",
    "!python evil.py",
    "%%bash\npython evil.py",
    "!echo {evil()}",
    "%load_ext own",
    "%run other.py",
    "%own_magic",
    "get_ipython().input_transformers_cleanup.append(f)",
    "ip = get_ipython()",
    "from IPython import get_ipython",
    "import IPython\nIPython.get_ipython()",
    "e.__traceback__.tb_frame",
    "import operator\noperator.attrgetter('__globals__')(f)",
    "import operator\noperator.attrgetter(n)(f)",
    "import functools\nfunctools.update_wrapper(np, x)",
    "import functools\nfunctools.reduce(getattr, ['a'], x)",
    "import numpy as np\nnp.load('x', allow_pickle=True)",
    "import torch\ntorch.load('x', weights_only=False)",
    "import pickle",
    "import numpy as np\nnp.sys",
    "import torch\n[torch][0]._C",
    "import numpy as np\nfor m in [np]:\n    m.matmul = print",
    "import numpy as np\ndef patch(m): m.matmul = print\npatch(np)",
    "import numpy as np\nif 0: np = 3\nnp.matmul = print",
    "import math as s\nif 1:\n    import sys as s\ns.modules",
    "__name__ = 'x'",
    "import timeit\ntimeit.timeit('exec(1)')",
    "import timeit\ntimeit.timeit(code)",
    "%timeit exec('x')",
    "%%time\nexec('x')",
    "import threading\nthreading.sys",
    "import mlhood.measure\nmlhood.measure.os",
    "from mlhood.kernels import GEMM\nGEMM.update(x=1)",
    "import sys\nsys.path.insert(0, '.')",
    "import sys\nx = [sys]",
    "x = __builtins__",
    "import numpy.f2py",
    "df.eval('@x')",
    "import jax\njax._src",
    "import string\nstring.Formatter().get_field('0.x',(f,),{})",
    "import own_module",
    "import os\nos.system('x')",
    "from os import system",
    "from os import *",
    "import numpy as np\nm = np\nm.matmul = 3",
    "def f():\n    import numpy\n    numpy.dot = 1",
    "def f(x, np=1): pass\nimport numpy as np\nnp.dot = f",
    "class A:\n    exec('x')",
    "lambda: eval('1')",
    "@exec\ndef f(): pass",
    "import numexpr\nnumexpr.evaluate('x')",
    "import types\ntypes.FunctionType(c,{})",
    "print.__self__",
    "import weakref\nweakref.proxy(np)",
    "x = !python a.py",
    "%pip install .",
    "%%python\nx",
    "import asyncio\nasyncio.create_subprocess_shell('x')",
    "global __name__",
    "def f():\n    global __name__\n    __name__='m'",
    "a.__class__ = B",
    "f.__dict__['x']",
    "import io\nio.sys",
    "import numpy as np\n(m := np).matmul = print",
]
INSIDE = [
    "import gc\ngc.collect()",
    "import sys\nprint(sys.version, file=sys.stderr)",
    "import os\nos.environ['XLA_FLAGS'] = 'x'",
    "if 'f' in globals(): pass",
    "%matplotlib inline",
    "!pip install numpy",
    "!ls -la | grep x",
    "%timeit -n 1 -r 1 f(x)",
    "%%time\nx = 3",
    "%%capture out\nf()",
    "import timeit\ntimeit.timeit('f(x)', globals=globals())",
    "import timeit\ntimeit.timeit(lambda: f())",
    "import numpy as np\ndef relu(x, xp=np): return xp.maximum(x, 0)",
    "class A:\n    __slots__ = ('x',)\n    def __init__(self, np): self.x = np\n    __call__ = run",
    "model.eval()",
    "layer.weight.data = x",
    "getattr(x, 'shape', ())",
    "import functools\n@functools.wraps(f)\ndef g(): pass",
    "def g(eval): return eval(3)",
    "import matplotlib.pyplot as plt\nplt.rcParams['x'] = 3\nplt.rcParams.update(x=3)",
    "import torch\ntorch.backends.cudnn.benchmark = True",
    "f.__name__ = 'x'",
    "x.__class__.__name__",
    "import tqdm",
    "%%writefile x.py\nexec(1)",
    "import platform\nplatform.system()",
    "def (",
    "x = [1,2]\nx.append(3)",
    "from jax.interpreters import ad\nad.primitive_jvps[p] = f",
    "import IPython.display as d\nd.display(3)",
    "from concurrent.futures import ThreadPoolExecutor",
    "if __name__ == '__main__': pass",
    "import pandas as pd\npd.options.display.x = 1",
    "node._replace(x=3)",
    "df.query('x > 3')",
    "import numpy as np\nnp.random.seed(0)",
    "exec_time = 3",
    "import mlhood\nmlhood.check('P1.1')",
    "from mlhood import check",
    "import numpy as np\nx[0] = 3\ny = np\nx.T[0] = 1",
    "?print\n%who",
    "def f(**vars): return vars",
]


@pytest.mark.parametrize("cell", OUTSIDE)
def test_what_cannot_be_read_before_it_runs_is_found(cell):
    assert findings(cell)


@pytest.mark.parametrize("cell", INSIDE)
def test_honest_code_is_not(cell):
    assert not findings(cell)


def test_a_finding_names_the_line_and_the_reason():
    (finding,) = findings("import numpy as np\ntext = 'x = 1'\nexec(text)")
    assert "because the line `exec(text)` uses `exec`" in finding


def test_cells_are_read_together():
    assert findings("import numpy as np", "m = np", "m.matmul = print")
    assert findings("import numpy as np\nmodules = [np]", "def f(m): m.matmul = print")
    assert not findings("import numpy as np\nmodules = [np]", "class A:\n    def f(self): self.x = 3")


def test_a_cell_that_is_nested_too_deeply_is_found_and_one_that_is_no_python_is_not():
    assert findings("x = " + "-" * 50_000 + "1")
    assert findings("x = 1" + " + 1" * 50_000)
    assert not findings("x = " + "(" * 5000)


def test_cells_of_the_course_may_use_anything():
    world = ClosedWorld()
    world.add_cell(read_cell("exec('x = 1')\nimport sys as s"), trusted=True)
    assert not world.findings
    world.add_cell(read_cell("s.modules"))
    assert world.findings


@pytest.mark.parametrize("name", PROJECTS)
def test_right_solutions_in_any_style_are_inside(name):
    """Wanted: no honest solution is held."""
    galleries = {"P1": p1_right, "P2": p2_right, "P3": p3_right, "P4": p4_right, "P5": p5_right}
    given = course_sources(PROJECTS[name])
    for style, cells in {"the master": {}, **galleries[name].RIGHT}.items():
        world = ClosedWorld()
        for cell in restore(quick_master(name, cells), PROJECTS[name]).cells:
            if cell.node.cell_type == "code":
                world.add_cell(read_cell(cell.node.source), trusted=fingerprint(cell.node.source) in given)
        assert not world.findings, style
