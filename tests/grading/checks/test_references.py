from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mlhood.grading.checks.cell_source import read_cell
from mlhood.grading.checks.course_modules import aliases, is_function
from mlhood.grading.checks.marks import judge
from mlhood.grading.checks.references import ReferenceAnalysis
from mlhood.grading.checks.submission import Session
from mlhood.grading.checks.task import Task, points
from mlhood.grading.execution.grade_notebook import RunSettings, grade
from mlhood.grading.rpc.transport import LocalTransport

FORBIDDEN = ("torch.nn.functional.unfold", "mlhood.kernels")


def forbidden_name(*cells: str) -> str | None:
    """The forbidden name that `im2col` uses."""
    references = ReferenceAnalysis()
    for cell in cells:
        references.add_cell(read_cell(cell))
    use = references.find_forbidden(["im2col"], FORBIDDEN)
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
        ["import torch\nF = torch.nn.functional\ndef im2col(x):\n    return F.unfold(x)"],
        ["def im2col(x):\n    import torch.nn.functional as F\n    return F.unfold(x)"],
        ["def im2col(x):\n    from torch.nn.functional import unfold\n    return unfold(x)"],
        ["import torch\ndef im2col(x, f=torch.nn.functional.unfold):\n    return f(x)"],
        ["import torch\nclass Own:\n    f = torch.nn.functional.unfold", "def im2col(x):\n    return Own.f(x)"],
        [
            "import torch",
            "def help(x):\n    return torch.nn.functional.unfold(x)",
            "def im2col(x):\n    return help(x)",
        ],
        ["%%time\nimport torch\ndef im2col(x):\n    return torch.nn.functional.unfold(x)"],
        ["%matplotlib inline\nimport torch\nif True:\n    def im2col(x):\n        y = torch.nn.functional.unfold(x)"],
        ["def im2col(x):\n    return x", "import torch\nim2col, y = torch.nn.functional.unfold, 3"],
        ["import torch\ndef im2col(x):\n    return getattr(torch.nn.functional, 'unfold')(x)"],
        ["from torch.nn.functional import unfold as u\nim2col = u\nim2col = im2col"],
        ["import torch\nhelp = torch.nn.functional.unfold\ndef im2col(x): return help(x)\nhelp, other = help, 3"],
        ["import torch.nn.functional as F\nif 0:\n    F = None\ndef im2col(x): return F.unfold(x)"],
        ["import torch.nn.functional as F\nim2col = F.unfold\nif 0:\n    im2col = print"],
        ["import math as F\nif 1:\n    import torch.nn.functional as F\ndef im2col(x): return F.unfold(x)"],
        ["import torch\ntools = {}\ntools['f'] = torch.nn.functional.unfold\ndef im2col(x): return tools['f'](x)"],
        ["import torch\ntools = []\ntools.append(torch.nn.functional.unfold)\ndef im2col(x): return tools[0](x)"],
        ["import torch\ndef im2col(x): return im2col.f(x)\nim2col.f = torch.nn.functional.unfold"],
        ["import torch\ndef im2col(x): pass\ndef swap():\n    global im2col\n    im2col = torch.nn.functional.unfold"],
        [
            "import torch\ndef hide(f, g): f.inner = g\ndef im2col(x): return im2col.inner(x)",
            "hide(im2col, torch.nn.functional.unfold)",
        ],
        [
            "import torch\nclass Tool:\n    def set(self, f): self.f = f\ntool = Tool()",
            "tool.set(torch.nn.functional.unfold)\ndef im2col(x): return tool.f(x)",
        ],
        ["import torch.nn.functional as F\nclass Own:\n    def __call__(self, x): return F.unfold(x)\nim2col = Own()"],
    ],
)
def test_a_use_is_found_however_it_is_written(cells):
    assert forbidden_name(*cells) == UNFOLD


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
def test_code_that_does_not_use_it_passes(cells):
    assert forbidden_name(*cells) is None


def test_a_forbidden_module_forbids_its_contents():
    assert (
        forbidden_name("from mlhood.kernels import conv\ndef im2col(x):\n    return conv.im2col(x)") == "mlhood.kernels"
    )
    assert forbidden_name("import mlhood\ndef im2col(x):\n    return mlhood.kernels.GEMM['blas']") == "mlhood.kernels"


RULES = "mlhood.jaxlab.autodiff.rules"


@pytest.mark.parametrize(
    "cell",
    [
        "from mlhood.jaxlab.autodiff import RULES\nim2col = RULES['relu']",
        "from mlhood.jaxlab.autodiff.autodiff_figures import RULES as R\ndef im2col(x): return R['relu'](x)",
        "from mlhood.jaxlab.autodiff import autodiff_figures as f\ndef im2col(x): return f.RULES['relu'](x)",
        "import mlhood.jaxlab.autodiff.tape\ndef im2col(x): return mlhood.jaxlab.autodiff.RULES",
        "from mlhood.jaxlab.autodiff.autodiff_figures import *\ndef im2col(x): return RULES['relu'](x)",
    ],
)
def test_what_another_module_of_the_course_imports_is_found(cell):
    references = ReferenceAnalysis()
    references.add_cell(read_cell(cell))
    use = references.find_forbidden(["im2col"], [RULES])
    assert use is not None
    assert use.name == RULES
    assert references.find_forbidden(["im2col"], ["mlhood.jaxlab.autodiff.tape"]) is None


def test_names_of_the_course_are_followed_through_its_modules_and_no_further():
    assert "mlhood.jaxlab.operators.network.forward" in aliases("mlhood.jaxlab.operators.cases.network.forward")
    assert aliases("mlhood.jaxlab.tracing.tracer.live") == {"mlhood.jaxlab.tracing.tracer.live"}
    assert aliases("torch.nn.functional") == {"torch.nn.functional"}
    assert aliases("mlhood.jaxlab.cluster.program.loss") == {"mlhood.jaxlab.cluster.program.loss"}  # offered there
    assert aliases(f"mlhood.{'a' * 5000}.b")
    assert is_function("mlhood.jaxlab.operators.with_jax.add")
    assert not is_function("mlhood.kernels.GEMM.update")


@pytest.mark.parametrize("values", ["[torch]", "dict(f=torch.nn.functional)", "torch"])
def test_a_module_that_is_passed_on_leaves_open_what_is_used(values):
    references = ReferenceAnalysis()
    references.add_cell(read_cell(f"import torch\nvalues = {values}\ndef im2col(x): return values[0].unfold(x)"))
    use = references.find_forbidden(["im2col"], FORBIDDEN)
    assert use is not None
    assert use.passed.startswith("torch")
    assert references.find_forbidden(["im2col"], ["mlhood.kernels"]) is None


def test_given_cells_may_use_anything_and_their_imports_still_count():
    references = ReferenceAnalysis()
    given = read_cell("from torch.nn.functional import unfold as u\ndef given(x):\n    return u(x)")
    references.add_cell(given, trusted=True)
    references.add_cell(read_cell("def im2col(x):\n    return given(x)\ndef other(x):\n    return u(x)"))
    assert references.find_forbidden(["im2col"], FORBIDDEN) is None
    use = references.find_forbidden(["other"], FORBIDDEN)
    assert use is not None
    assert use.line == "return u(x)"


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


def judged(cell: str, tmp_path):
    names: dict = {}
    exec(cell, names)
    session = Session(LocalTransport(names), tmp_path, tmp_path)
    session.add_cell(cell)
    return judge(TASK, session, 5)


def test_a_forbidden_use_costs_the_checks_of_the_functions_that_reach_it(tmp_path):
    result = judged(CELL.format("torch.nn.functional.relu"), tmp_path)
    assert [check.status for check in result.checks] == ["passed", "failed", "failed"]
    assert result.checks[1].what == "the solution uses `torch.nn.functional.relu`, which is not allowed here"
    assert "torch.nn.functional.relu(torch.from_numpy(x))" in result.checks[1].parts["got"]


def test_other_functions_cost_nothing(tmp_path):
    result = judged(CELL.format("torch.relu"), tmp_path)
    assert result.earned == 12


USES = "import operator\ndef double(x):\n    return operator.add(x, x)"


def test_a_forbidden_use_costs_points_in_a_process_of_its_own(course, tmp_path):
    first, *others = course.SYNTHETIC.tasks
    project = replace(course.SYNTHETIC, tasks=(replace(first, forbidden=("operator.add",)), *others))
    marks = grade(course.notebook({**course.SOLUTIONS, "T9.1": USES}), project, tmp_path, RunSettings(0))
    assert [task.earned for task in marks.tasks] == [0, 20, 20]
    assert all("the line `return operator.add(x, x)`" in check.parts["got"] for check in marks.tasks[0].checks)


def test_calling_a_stand_in_is_no_forbidden_use():
    references = ReferenceAnalysis()
    stand_in = "from mlhood.grading.projects.p3.reference import columns as im2col"
    caller = "def f(x): return im2col(x)"
    references.add_cell(read_cell(stand_in), trusted=True)
    references.add_cell(read_cell(caller))
    assert references.find_forbidden(["f"], ["mlhood.grading", "mlhood.kernels"]) is None


def test_a_definition_in_a_cell_that_stopped_clears_nothing():
    references = ReferenceAnalysis()
    references.add_cell(read_cell("import torch\nim2col = torch.nn.functional.unfold"))
    references.add_cell(read_cell("1 / 0\ndef im2col(x): return x"), completed=False)
    use = references.find_forbidden(["im2col"], FORBIDDEN)
    assert use is not None
    references.add_cell(read_cell("def im2col(x): return x"))
    assert references.find_forbidden(["im2col"], FORBIDDEN) is None


# how a function can get into another one: through names, objects, containers and calls
WAYS = [
    "def f(x=(g := F.unfold)): pass\ndef im2col(x): return g(x)",
    "def f(x: (g := F.unfold)): pass\ndef im2col(x): return g(x)",
    "def f() -> (g := F.unfold): pass\ndef im2col(x): return g(x)",
    "@(g := F.unfold)\ndef f(): pass\ndef im2col(x): return g(x)",
    "class A((g := F.unfold) and object): pass\ndef im2col(x): return g(x)",
    "class A:\n  g = F.unfold\ndef im2col(x): return A.g(x)",
    "class A:\n  def m(self, x): return F.unfold(x)\ndef im2col(x): return A().m(x)",
    "[g := F.unfold for _ in [0]]\ndef im2col(x): return g(x)",
    "lambda x=(g := F.unfold): 0\ndef im2col(x): return g(x)",
    "with open('x') as h: g = F.unfold\ndef im2col(x): return g(x)",
    "match F.unfold:\n  case g: pass\ndef im2col(x): return g(x)",
    "for g in [F.unfold]: break\ndef im2col(x): return g(x)",
    "try: raise E(F.unfold)\nexcept E as e: g = e.args[0]\ndef im2col(x): return g(x)",
    "def outer():\n  global g\n  g = F.unfold\nouter()\ndef im2col(x): return g(x)",
    "def outer():\n  def inner():\n    global im2col\n    im2col = F.unfold\n  inner()\nouter()",
    "class A: pass\nA.g = F.unfold\ndef im2col(x): return A.g(x)",
    "a = A()\na.g = F.unfold\nb = a\ndef im2col(x): return b.g(x)",
    "d = {}\nd['g'] = F.unfold\ndef im2col(x): return d['g'](x)",
    "l = []\nl.append(F.unfold)\ndef im2col(x): return l[0](x)",
    "l = []\nk = l\nk.append(F.unfold)\ndef im2col(x): return l[0](x)",
    "l = []\n(lambda q: q.append(F.unfold))(l)\ndef im2col(x): return l[0](x)",
    "l = []\ndef put(q): q.append(F.unfold)\nput(l)\ndef im2col(x): return l[0](x)",
    "l = []\ndef put(q): q += [F.unfold]\nput(l)\ndef im2col(x): return l[0](x)",
    "l = [0]\ndef put(q): q[0] = F.unfold\nput(l)\ndef im2col(x): return l[0](x)",
    "l = []\ndef put(*q): q[0].append(F.unfold)\nput(l)\ndef im2col(x): return l[0](x)",
    "l = []\ndef put(q):\n  r = q\n  r.append(F.unfold)\nput(l)\ndef im2col(x): return l[0](x)",
    "l = []\nlist(map(l.append, [F.unfold]))\ndef im2col(x): return l[0](x)",
    "l = []\np = l.append\np(F.unfold)\ndef im2col(x): return l[0](x)",
    "import queue\nq = queue.Queue()\nq.put(F.unfold)\ndef im2col(x): return q.get()(x)",
    "import collections\nq = collections.deque()\nq.appendleft(F.unfold)\ndef im2col(x): return q[0](x)",
    "import heapq\nh=[]\nheapq.heappush(h,(0,F.unfold))\ndef im2col(x): return h[0][1](x)",
    "import operator\nd={}\noperator.setitem(d,'g',F.unfold)\ndef im2col(x): return d['g'](x)",
    "import itertools\ng = next(itertools.chain([F.unfold]))\ndef im2col(x): return g(x)",
    "def gen():\n  yield F.unfold\nit = gen()\ndef im2col(x): return next(it)(x)",
    "import functools\n@functools.lru_cache\ndef get(): return F.unfold\ndef im2col(x): return get()(x)",
    "class P:\n  @property\n  def g(self): return F.unfold\np = P()\ndef im2col(x): return p.g(x)",
    "class P:\n  def __getattr__(self, n): return F.unfold\np = P()\ndef im2col(x): return p.anything(x)",
    "class P:\n  def __call__(self, x): return F.unfold(x)\nim2col = P()",
    "class P:\n  def __init_subclass__(cls): cls.g = F.unfold\nclass Q(P): pass\ndef im2col(x): return Q.g(x)",
    "def deco(f): return F.unfold\n@deco\ndef im2col(x): return x",
    (
        "import threading\ndef t(): \n  global im2col\n  im2col = F.unfold\n"
        "th = threading.Thread(target=t); th.start(); th.join()"
    ),
    (
        "import contextlib\n@contextlib.contextmanager\ndef c(): yield F.unfold\nwith c() as g: pass\n"
        "def im2col(x): return g(x)"
    ),
    "im2col = getattr(torch.nn.functional, 'unfold')",
    "im2col = getattr(torch.nn.functional, 'un' + 'fold')",
    "m = torch.nn.functional\nim2col = lambda x: m.unfold(x)",
    "import torch.nn.functional as F\ndef im2col(x, f=F.unfold): return f(x)",
    "from torch.nn.functional import unfold as u\nim2col = u",
    'im2col = getattr(F, "unfold")',
    "x = torch.ones(3)\nx.g = F.unfold\ndef im2col(y): return x.g(y)",
    "import types\nns = types.SimpleNamespace(g=F.unfold)\ndef im2col(x): return ns.g(x)",
    ("from dataclasses import dataclass\n@dataclass\nclass B:\n  g: object = F.unfold\ndef im2col(x): return B().g(x)"),
    "import weakref\nr = weakref.ref(F.unfold)\ndef im2col(x): return r()(x)",
    (
        "import signal\ndef h(s, f):\n  global im2col\n  im2col = F.unfold\n"
        "signal.signal(signal.SIGUSR1, h)\nimport os\nos.kill(os.getpid(), signal.SIGUSR1)"
    ),
    "import re\ndef im2col(x): return re.sub('a', F.unfold, 'b')",
    (
        "o = object()\nclass D(dict):\n  def __missing__(self, k): return F.unfold\nd = D()\n"
        "def im2col(x): return d['z'](x)"
    ),
    "import contextvars\nv = contextvars.ContextVar('v')\nv.set(F.unfold)\ndef im2col(x): return v.get()(x)",
    "e = ValueError(F.unfold)\ndef im2col(x): return e.args[0](x)",
    "s = set()\ns.add(F.unfold)\ndef im2col(x): return next(iter(s))(x)",
    "import numpy as np\na = np.empty(1, object)\na[0] = F.unfold\ndef im2col(x): return a[0](x)",
    "import numpy as np\na = np.empty(1, object)\na.fill(F.unfold)\ndef im2col(x): return a[0](x)",
    "import numpy as np\na = np.empty(1, object)\nnp.copyto(a, F.unfold)\ndef im2col(x): return a[0](x)",
    "import threading\nloc = threading.local()\nloc.g = F.unfold\ndef im2col(x): return loc.g(x)",
    "class S:\n  def set(self, g): self.g = g\ns = S()\ns.set(F.unfold)\ndef im2col(x): return s.g(x)",
    "class S:\n  def keep(self, g): self.g = g\ns = S()\nk = s.keep\nk(F.unfold)\ndef im2col(x): return s.g(x)",
    "def make():\n  box = []\n  return box.append, (lambda x: box[0](x))\nput, im2col = make()\nput(F.unfold)",
    (
        "def make():\n  g = None\n  def put(f):\n    nonlocal g\n    g = f\n  def get(x): return g(x)\n"
        "  return put, get\nput, im2col = make()\nput(F.unfold)"
    ),
]


@pytest.mark.parametrize("cell", WAYS)
def test_a_function_is_found_however_it_gets_into_another(cell):
    """It is refused, or held where only the run knows."""
    references = ReferenceAnalysis()
    references.add_cell(read_cell(f"import torch\nimport torch.nn.functional as F\n{cell}"))
    assert references.find_forbidden(["im2col"], FORBIDDEN) is not None


@pytest.mark.parametrize(
    "cell",
    [
        "x = torch.ones(3)\ny = F.unfold(x, 3)\ndef im2col(z): return z + x",
        "compare({'mine': lambda: im2col(x), 'torch': lambda: F.unfold(x, 3)})",
        "compare({'mine': partial(im2col, x), 'torch': partial(F.unfold, x)}, flops=3)",
        "class Check:\n    reference = F.unfold\nassert Check.reference(x).equal(im2col(x))",
        "results = []\nresults.append(F.unfold(x))\nresults.append(im2col(x))",
        "time = measure(F.unfold, x)\nbest = min(measure(im2col, x), time)",
    ],
)
def test_a_comparison_with_it_costs_nothing(cell):
    references = ReferenceAnalysis()
    references.add_cell(read_cell("import torch\nimport torch.nn.functional as F\ndef im2col(x): return x"))
    references.add_cell(read_cell(cell))
    assert references.find_forbidden(["im2col"], FORBIDDEN) is None


def test_more_code_than_can_be_analysed_is_held(tmp_path):
    """Otherwise a small file could take hours of the grader's time."""
    chain = "".join(f"def f{i}(): return f{i - 1}()\n" for i in range(1, 1500))
    session = Session(LocalTransport({}), tmp_path, tmp_path)
    session.add_cell(f"l = []\ndef f0(): return 1\n{chain}" + "h(l, f1499)\n" * 1500)
    assert session.references.too_much
    assert "more code than can be analysed" in str(session.closed_world.findings[0])


def test_a_module_that_a_call_gets_is_not_what_the_call_changes():
    """The function changes its first argument, so the call may have stored the others there, but not in `torch`."""
    references = ReferenceAnalysis()
    references.add_cell(read_cell("import torch\nimport torch.nn.functional as F\ndef im2col(x): return torch.relu(x)"))
    references.add_cell(read_cell("def add(c, *more):\n    c += more\nadd(results, torch.float32, F.unfold)"))
    assert references.find_forbidden(["im2col"], FORBIDDEN) is None


@pytest.mark.parametrize(
    "source",
    [
        "def im2col(a, b):\n    return a @ b",
        "def im2col(a, b):\n    a @= b\n    return a",
        "import numpy as np\ndef im2col(a, b):\n    return np.matmul(a, b)",
        "def im2col(a, b):\n    return a.T.dot(b)",
    ],
)
def test_the_operator_of_a_matrix_product_can_be_forbidden(source):
    references = ReferenceAnalysis()
    references.add_cell(read_cell(source))
    use = references.find_forbidden(["im2col"], ["numpy.matmul"])
    assert use is not None
    assert use.name == "numpy.matmul"
    assert references.find_forbidden(["im2col"], FORBIDDEN) is None


def test_the_names_beside_another_are_found_through_functions_and_dictionaries():
    references = ReferenceAnalysis()
    references.add_cell(read_cell("table = convolution_table()\nother(compare)"), trusted=True)
    references.add_cell(read_cell("def slow(x):\n    return direct(x)\nboth = {'no-BLAS': slow}\nunused(slow)"))
    references.add_cell(read_cell("for row in rows:\n    table.fill(row, compare(both))"))
    assert references.names_referred_with("compare") == {"table", "compare", "both", "slow", "direct", "rows", "row"}
    assert references.names_referred_with("absent") == set()


def test_the_names_beside_another_are_not_those_of_an_earlier_loop_over_the_same_variable():
    references = ReferenceAnalysis()
    references.add_cell(read_cell("for row in rows:\n    table.fill(row, compare(direct))"))
    references.add_cell(read_cell("for row in rows:\n    other.fill(row, compare(blas))"))
    assert "direct" in references.names_referred_with("compare")
    assert "direct" not in references.names_referred_with("compare", "other")
    assert "blas" in references.names_referred_with("compare", "other")
