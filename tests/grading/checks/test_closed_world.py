from __future__ import annotations

import pytest

from mlhood.grading.checks.cell_source import read_cell
from mlhood.grading.checks.closed_world import ClosedWorld
from mlhood.grading.notebooks.master import solution_source
from mlhood.grading.notebooks.notebook import label
from mlhood.grading.notebooks.restore import course_sources, fingerprint, restore
from mlhood.grading.notebooks.variant import master_of_variant
from mlhood.grading.projects import PROJECTS
from mlhood.grading.projects.collect import variant, with_values
from tests.grading.projects import p1_right, p2_right, p3_right, p4_right, p5_right
from tests.grading.projects.quick import master, quick_master
from tests.tools.grading.variant_proof import WORDS, covering_values


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
    "from mlhood.jaxlab.operators import cases\ncases.OPERATORS.add('x')",
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
    "def f(x: exec('1')): pass",
    "def f() -> exec('1'): pass",
    "def f(*a: exec('1'), **k: exec('1')): pass",
    "def f(x: \"exec('1')\"): pass",
    "class A:\n x: 'exec(1)'",
    "import typing\ntyping.get_type_hints(f)",
    "import inspect\ninspect.signature(f, eval_str=True)",
    "f.__annotations__['x'] = s",
    "class A:\n __annotations__ = d",
    "import numpy as np\nnp.load('x.npy', None, True)",
    "import jax.numpy as jnp\njnp.load('x', None, True)",
    "from numpy import load\nload('x',None,True)",
    "import numpy as np\nnp.load('x', **{'allow_pickle': True})",
    "import numpy as np\nnp.load(*a)",
    "import numpy as np\n[np.load][0]('x',None,True)",
    "from numpy import *\nload('x', None, True)",
    "import numpy as np\nnp.testing.runstring('x',{})",
    "import numpy as np\nnp.testing.measure('x')",
    "import numpy as np\n[np][0].testing.measure('x')",
    "import torch.fx",
    "import torch\n[torch][0].fx",
    "import timeit\ntimeit.timeit(stmt=s)",
    "import timeit\ntimeit.timeit('1', s)",
    "import timeit\ntimeit.timeit('1', setup=s)",
    "import timeit\ntimeit.timeit(**d)",
    "import timeit\nt = [timeit.timeit]",
    "import timeit\nrun = timeit.timeit\nrun(s)",
    "import torch.utils.benchmark as b\nb.Timer(s)",
    "options.register_custom_ops_library('x.so')",
    "class A:\n __class__ = int",
    "class A:\n @property\n def __class__(self): return int",
    "class A:\n __array_interface__ = d",
    "class A:\n @property\n def __array_interface__(self): return d",
    "class A:\n __match_args__ = ('__globals__',)",
    "class A:\n __globals__: int",
    "class M:\n def __instancecheck__(c, i): return True",
    "class M(type): pass",
    "type('A', (), d)",
    "make = type",
    "import functools\nfunctools.partial(type, 'A')",
    "match f:\n case object(__globals__=g): pass",
    "match f:\n case A(g): pass",
    "import dataclasses\ndataclasses.make_dataclass('A', d)",
    "import functools\n@functools.singledispatch\ndef f(x): pass",
    "import sys\ns = sys\ns.modules",
    "import sys\nx.s = sys",
    "import numba\nx = [numba]",
    "import pandas as pd\npd.core.computation.eval",
    "import jaxlib",
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
    "from mlhood.jaxlab.operators import with_jax as ops\ndef f(x, y): return ops.add(x, y)",
    "import mlhood.jaxlab.operators.no_jax\nmlhood.jaxlab.operators.no_jax.add(1, 2)",
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
    "import numpy as np\nxp = np\nxp.zeros(3)",
    "import numpy as np\ndef f(x, xp=np): return xp.sum(x)",
    (
        "from typing import List, Optional, Tuple, Dict, Any, Callable\n"
        "def f(x: Optional[List[int]] = None) -> Dict[str, Tuple[int, ...]]: return {}"
    ),
    (
        "from dataclasses import dataclass, field\n@dataclass(frozen=True)\nclass P:\n    x: int\n"
        "    y: 'list[int]' = field(default_factory=list)\n    def __add__(self, o): return P(self.x+o.x)"
    ),
    "import timeit\ntimeit.repeat('f(x)', setup='x = 1', globals=globals(), repeat=3, number=10)",
    "from timeit import default_timer as timer\nt = timer()",
    "import timeit\nt = timeit.default_timer()",
    "import numpy as np\nnp.lib.stride_tricks.as_strided(x, s, t)",
    "from numpy.lib.stride_tricks import sliding_window_view, as_strided",
    "import numpy as np\nnp.testing.assert_allclose(a, b, rtol=1e-3)",
    "from numpy.testing import assert_allclose",
    "import numpy.testing as npt\nnpt.assert_array_equal(a,b)",
    "import numpy as np\ndata = np.load('x.npz')\ndata['a']",
    "import numpy as np\nnp.load('x.npy', mmap_mode='r')",
    "import torch\ntorch.save(m.state_dict(), 'm.pt')\nm.load_state_dict(torch.load('m.pt', weights_only=True))",
    "import torch\nm.load_state_dict(torch.load('m.pt', map_location='cpu'))",
    "import torch\ntorch.load('m.pt', 'cpu')",
    "import onnx\nm = onnx.load('lenet.onnx')\nonnx.checker.check_model(m)",
    (
        "import onnxruntime as ort\no = ort.SessionOptions()\no.intra_op_num_threads = 1\n"
        "o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL"
    ),
    "import json\nwith open('a.json') as f: d = json.load(f)",
    (
        "match shape:\n    case (n, c, h, w): pass\n    case [a, *rest]: pass\n    case {'k': v}: pass\n"
        "    case int(n) | float(n): pass\n    case str(): pass\n    case _: pass"
    ),
    (
        "from mlhood.compiler.operators.elementwise import Relu\nmatch node.operator:\n"
        "    case Relu(): pass\n    case _ if isinstance(x, Relu): pass"
    ),
    "isinstance(x, type)",
    "type(x) is int",
    "type(x).__name__",
    "type(x) in (int, float)",
    "list(map(type, xs))",
    "print(type(x))",
    "assert type(a) == type(b)",
    "type = 'conv'\nprint(type)",
    "for type in ['a']:\n    print(type)",
    "def f(type): return type",
    "op_type = node.op_type",
    (
        "from functools import partial, reduce, cache, wraps\ndef d(f):\n    @wraps(f)\n"
        "    def g(*a, **k): return f(*a, **k)\n    return g"
    ),
    "from math import *\nprint(sqrt(2), ceil(1.5))",
    "from torch.nn import *\nConv2d(1,2,3)",
    "import torch.utils.benchmark as b\nb.Timer(stmt='f(x)', globals={'f': f, 'x': x}).timeit(10)",
    "import torch\ntorch.onnx.export(m, (x,), 'm.onnx', input_names=['x'], dynamic_axes=None)",
    "import os\nthreads = os.cpu_count()",
    "from multiprocessing import cpu_count\ncpu_count()",
    "import multiprocessing\nmultiprocessing.cpu_count()",
    "import pandas as pd\npd.testing.assert_frame_equal(a, b)\npd.api.types.is_numeric_dtype(x)",
    "import numba\n@numba.njit('float32[:,:](float32[:,:])')\ndef f(a): return a",
    "from jax.experimental.shard_map import shard_map\nfrom jax.sharding import Mesh, PartitionSpec as P",
    "xs: 'List[int]' = []",
    "def f(x: np.ndarray, *, k: int = 3) -> 'np.ndarray': ...",
    "def f(x: 'float32 [N, C, H, W]'): ...",
    "def conv(x: \"(N, C)\", w: 'weights') -> 'y': ...",
    "f'{x:.2f} {x!r} {type(x).__name__}'",
    "dtype = np.float32",
    "import numpy as np\nfloat32 = np.float32\ndtypes = {'a': np.float32, 'b': np.int8}",
    "d = dict(**a, **{'k': 1})",
    "f(**{'x': 1, 'y': 2})",
    "f(**options)",
    "import numpy as np, torch\nbackends = [np, torch]",
    "import numpy as np\ndef matmul(lib, a, b): return lib.matmul(a, b)\nmatmul(np, a, b)",
    "import numpy as np\nimport torch\nfor lib in (np, torch): lib.zeros(3)",
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


@pytest.mark.parametrize("name", PROJECTS)
def test_solutions_of_all_variants_are_inside(name):
    """The masters' own solutions, with each value of each parameter: nobody who finds them is held."""
    project = PROJECTS[name]
    varied = {word: variant(project, word) for word in WORDS}
    varied |= {word: with_values(project, values) for word, values in covering_values(project).items()}
    for word, edition in varied.items():
        world = ClosedWorld()
        for cell in master_of_variant(master(name), edition).cells:
            if cell.cell_type == "code":
                labelled = label(cell)
                solves = labelled is not None and labelled.role == "solution"
                world.add_cell(read_cell(solution_source(cell)), trusted=not solves)
        assert not world.findings, word
