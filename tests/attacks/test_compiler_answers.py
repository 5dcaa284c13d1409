"""What solves a task of P2 does not exist where it is graded, however a solution tries to reach it."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell

import mlhood
from mlhood.grading.checks.marks import grade_task
from mlhood.grading.checks.submission import Session
from mlhood.grading.notebooks.notebook import label, read
from mlhood.grading.projects.p2 import P2
from tests.attacks.attacked import LIMIT
from tests.grading.projects.quick import ROOT

pytestmark = pytest.mark.slow
COMPILER = Path(mlhood.__file__).parent / "compiler"
RULE = "from mlhood.compiler.operators import IMPORT_RULES\ndef conv(source): return IMPORT_RULES['{}'](source)"
INFER = "def infer_conv(x, w, strides, pads, dilations, group):\n    {}"
OPERATOR = "Conv(strides, pads, dilations, group).infer(x, w)"
FUSE = "def fuse_relu(graph): return {}(graph)"
CONV = (
    "import numpy as np\ndef integer_conv(x, w, bias, x_offset, padding):\n"
    "    z = np.pad(x.astype(np.int32) - x_offset, ((0, 0), (0, 0), (padding, padding), (padding, padding)))\n"
    "    return np.asarray({}).astype(np.int64) + bias[:, None, None]"
)
TORCH = "torch.tensor(z).double(), torch.tensor(w).double()"
FLOATS = "z.astype(np.float32), w.astype(np.float32)"
MODEL = (
    'import onnx.parser\nTEXT = \'<ir_version: 9, opset_import: ["": 18]> g (float[n, c, h, v] x, float[f, c, i, j] w)'
    " => (float[n, f, p, q] y) {y = Conv(x, w)}'\nMODEL = onnx.parser.parse_model(TEXT)\n"
)
CHILD = (
    'import subprocess, sys\nCODE = \'import numpy as np, torch; z, w = np.load("z.npy"), np.load("w.npy");'
    f"np.save(\"y.npy\", torch.conv2d({TORCH}))'\ndef child(z, w):\n    np.save('z.npy', z)\n    np.save('w.npy', w)\n"
    "    subprocess.run([sys.executable, '-c', CODE], check=True)\n    return np.load('y.npy')\n"
)

# by task and function, solutions by what they try
CHEATS: dict[tuple[str, str], dict[str, str]] = {
    ("P2.2", "conv"): {
        "a rule of the table": RULE.format("Conv"),
        "the operator's rule": "conv = Conv.from_onnx",
        "what reads its attributes": "def conv(source):\n    x, w = source.input(0), source.input(1)\n"
        "    return source.add(Conv(**Conv.read_attributes(source, x.type, w.type)), x, w, source.optional(2))",
    },
    ("P2.2", "relu"): {"the rule of all operators": "relu = Relu.from_onnx"},
    ("P2.3", "infer_conv"): {
        "the operator": INFER.format(f"return {OPERATOR}"),
        "a class attribute": "class A:\n    Conv = Conv\n" + INFER.format(f"return A.{OPERATOR}"),
        "by name": INFER.format(
            "import sys\n    __import__('mlhood.compiler.operators.convolution')\n"
            f"    return getattr(sys.modules['mlhood.compiler.operators.convolution'], 'Co' 'nv'){OPERATOR[4:]}"
        ),
        "ONNX": "import onnx.shape_inference, onnx.helper as h\n"
        + INFER.format(
            "node = h.make_node('Conv', 'xw', 'y', strides=strides, pads=pads, dilations=dilations, group=group)\n"
            "    types = {n: h.make_tensor_type_proto(1, v.shape) for n, v in (('x', x), ('w', w))}\n"
            "    found = onnx.shape_inference.infer_node_outputs(onnx.defs.get_schema('Conv', 18), node, types)['y']\n"
            "    sizes = [d.dim_param or d.dim_value for d in found.tensor_type.shape.dim]\n"
            "    return TensorType(x.element, (x.shape[0], *sizes[1:]))"
        ),
    },
    ("P2.4", "fuse_relu"): {
        "a pass": "from mlhood.compiler.passes import PASSES as A\nfuse_relu = A['fuse_activation']",
        "a pass by its module": "import importlib as i\n"
        + FUSE.format("i.import_module('mlhood.compiler.passes.activation').fuse_activation"),
        "the pass's file": f"from pathlib import Path\nexec(Path({str(COMPILER)!r}, 'passes', 'activation.py')"
        ".read_text().replace('from __future__ import annotations', ''))\nfuse_relu = fuse_activation",
        "a guard": "from mlhood.compiler.passes.rewriting import sweep\nfrom mlhood.compiler.passes import activation\n"
        + FUSE.format("activation.fuse_activation"),
    },
    ("P2.5", "shrink"): {
        "passes": "from mlhood.compiler.passes import PASSES as A\ndef shrink(graph):\n"
        "    while any([A[name](graph) for name in A]): pass",
        "a getattr": "import mlhood.compiler.passes.dead_code as p\ndef shrink(graph):\n"
        "    getattr(p, 'remove_' + 'dead_code')(graph)\n    while fold_batchnorm(graph) or fuse_relu(graph): pass",
    },
    ("P2.6", "choose_parameters"): {
        "the quantiser": "from mlhood.compiler.quantize.schema import choose_parameters as c\n"
        "def choose_parameters(low, high, schema): return c(low, high, 'int8', schema)",
    },
    ("P2.7", "integer_conv"): {
        "torch": "import torch\n" + CONV.format(f"torch.conv2d({TORCH})"),
        "torch by name": CONV.format(
            "getattr(__import__('to' + 'rch'), 'convolution')(*[__import__('torch').tensor(a).double() for a in (z, w)]"
            ", None, (1, 1), (0, 0), (1, 1), False, (0, 0), 1)"
        ),
        "a class attribute": "import torch\nclass A:\n    conv = torch.nn.functional.conv2d\n"
        + CONV.format(f"A.conv({TORCH})"),
        "jax": "import jax.lax\n" + CONV.format("jax.lax.conv(z, w.astype(np.int32), (1, 1), 'VALID')"),
        "jax's scipy": "import jax.scipy.signal as s\n"
        + CONV.format("[[s.correlate(a, f.astype(np.int32), 'valid')[0] for f in w] for a in z]"),
        "scipy": "import scipy.ndimage, scipy.signal as s\n"
        + CONV.format("[[s.correlate(a, f.astype(np.int64), 'valid', 'direct')[0] for f in w] for a in z]"),
        "ONNX's reference": MODEL
        + "import onnx.reference as r\n"
        + CONV.format(f"r.ReferenceEvaluator(MODEL).run(None, dict(zip('xw', ({FLOATS}))))[0]"),
        "onnxruntime": MODEL + "import onnxruntime as o\ndef session():\n"
        "    return o.InferenceSession(MODEL.SerializeToString(), providers=['CPUExecutionProvider'])\n"
        + CONV.format(f"session().run(None, dict(zip('xw', ({FLOATS}))))[0]"),
        "the interpreter": "from mlhood.compiler.backends.interpreter import run as r\n"
        "from mlhood.compiler.hir import Graph\ndef both(z, w):\n    g = Graph()\n"
        "    p, q = (g.placeholder(n, TensorType('float32', v.shape)) for n, v in (('x', z), ('w', w)))\n"
        "    g.output(g.add(Conv((1, 1), (0, 0, 0, 0), (1, 1), 1), p, q).outputs[0], 'y')\n"
        "    return r(g, x=z, w=w)['y']\n" + CONV.format(f"both({FLOATS})"),
        "the operator": CONV.format("Conv((1, 1), (0, 0, 0, 0), (1, 1), 1).evaluate(z, w.astype(np.int32))"),
        "the kernels": "from mlhood.kernels import CONV2D\n"
        + CONV.format(f"CONV2D['im2col_blas']({FLOATS}, np.zeros(len(w), np.float32), 1, 0)"),
        "a child program": CHILD + CONV.format("child(z, w)"),
    },
    ("P2.8", "sqnr"): {
        "the report": "from mlhood.compiler.quantize.report import sqnr",
        "the package": "import mlhood.compiler.quantize as q\ndef sqnr(a, b): return q.sqnr(a, b)",
    },
    ("P2.9", "by_hand"): {
        "the lowering": "from mlhood.compiler.hir import Graph\ndef by_hand(x, w, b, y, pads, kernel):\n"
        "    g = Graph()\n    p, q, r = (g.placeholder(v.name, v.type) for v in (x, w, b))\n"
        "    c = g.add(Conv((1, 1), pads, (1, 1), 1, ('Relu',)), p, q, r).outputs[0]\n    g.output(g.add(MaxPool("
        "kernel, kernel, (0, 0, 0, 0), (1, 1)), c).outputs[0])\n    return lower(g).instructions",
    },
    ("P2.10", "live_ranges"): {
        "the lowering's rule": "from mlhood.compiler.lir.program import with_deallocs\n"
        "def live_ranges(instructions):\n    owner = {}\n    for each in instructions:\n"
        "        for b in each.buffers:\n"
        "            owner.setdefault(b, owner.get(getattr(each, 'source', None), b))\n"
        "    needed = [b for b in dict.fromkeys(owner.values()) if not isinstance(b, Weight)]\n"
        "    used = [[owner[b] for b in (*each.reads, *each.writes)] for each in instructions]\n"
        "    steps = with_deallocs([*map(Alloc, needed), *instructions], owner)\n"
        "    at = {each: i for i, each in enumerate(e for e in steps if not isinstance(e, Dealloc))}\n"
        "    last = {e.buffer: at[s] - len(needed) for s, e in zip(steps, steps[1:]) if isinstance(e, Dealloc)}\n"
        "    return {b.name: (next(i for i, u in enumerate(used) if b in u), last[b]) for b in needed}",
    },
    ("P2.10", "allocate"): {
        "the compiler's plan": "def allocate(lifetimes, alignment): return plan(lifetimes, alignment).offsets",
    },
    ("P2.12", "slice_bytes"): {
        "the slices of programs": "from mlhood.compiler.backends.nmp.codegen import slicing as s\n"
        "def slice_bytes(layer, cut, element):\n    stage = replace(convolution(**layer), element=element)\n"
        "    return s.slice_bytes((stage,), *[cut[n] for n in ('rows', 'columns', 'filters', 'channels')])",
    },
    ("P2.13", "predict"): {
        "the simulator": "def predict(layer, cut, order, numbers):\n"
        "    slicing = Slicing(**(cut | {'columns': layer['width'], 'order': order}))\n"
        "    machine = replace(default_machine(), tiles=1, tilelets=1, issue_cycles=0, barrier_cycles=0)\n"
        "    timing = time_program(convolution_program(convolution(**layer), slicing, machine))\n"
        "    return {'bytes': timing.bytes, 'cycles': timing.cycles}",
    },
    ("P2.14", "fastest"): {
        "the search": "from mlhood.compiler.backends.nmp.codegen.search import search\n"
        "def fastest(layer): return asdict(search((convolution(**layer),), default_machine()).slicing)",
        "the search by name": "import sys\ndef fastest(layer):\n"
        "    name = 'mlhood.compiler.backends.nmp.codegen.search'\n    __import__(name)\n"
        "    found = sys.modules[name].greedy((convolution(**layer),), default_machine())\n"
        "    return asdict(found.slicing)",
    },
}
# the checks that ask other functions of the task
OTHERS = {
    ("P2.2", "conv"): ("relu_is_imported", "max_pool_is_imported"),
    ("P2.2", "relu"): ("conv_is_imported", "max_pool_is_imported"),
    ("P2.3", "infer_conv"): ("pooling_has_its_type",),
    ("P2.4", "fuse_relu"): ("batchnorm_is_folded", "folding_leaves_others_alone"),
    ("P2.7", "integer_conv"): ("rescale_rounds", "rescale_saturates"),
    ("P2.8", "sqnr"): ("answers_fit_the_table", "rows_are_measured"),
    ("P2.10", "live_ranges"): tuple(check.name for check in P2.tasks[9].checks[2:]),
    ("P2.10", "allocate"): ("ranges_are_found", "views_keep_their_owner_alive"),
}
CASES = [
    pytest.param(*key, source, id=f"{key[0]} {name}")
    for key, sources in CHEATS.items()
    for name, source in sources.items()
]


@pytest.fixture(scope="module")
def bare(pool, tmp_path_factory):
    """Bare kernels by their libraries, in which the solved notebook has run."""
    cells = [cell for cell in read(ROOT / "P2.ipynb").cells if cell.cell_type == "code"]
    solved = [cell.source for cell in cells if (known := label(cell)) is None or known.role in ("given", "solution")]
    with contextlib.ExitStack() as stack:
        kernels = {}
        for libraries in dict.fromkeys(task.libraries for task in P2.tasks if task.libraries):
            kernels[libraries] = stack.enter_context(pool.kernel(tmp_path_factory.mktemp("bare"), libraries))
            for source in solved:
                kernels[libraries].run(new_code_cell(source), LIMIT)
        yield kernels


@pytest.mark.parametrize(("task_id", "function", "source"), CASES)
def test_what_solves_a_task_earns_nothing(bare, task_id, function, source):
    task = P2.task(task_id)
    kernel = bare[task.libraries]
    kernel.run(new_code_cell(f"right, {function} = {function}, None"), LIMIT)
    kernel.run(new_code_cell(source), LIMIT)
    result = grade_task(task, Session(kernel, kernel.folder, kernel.scratch), 4711)
    kernel.run(new_code_cell(f"{function} = right"), LIMIT)
    passed = {check.name for check in result.checks if check.status == "passed"}
    assert not passed - set(OTHERS.get((task_id, function), ()))
