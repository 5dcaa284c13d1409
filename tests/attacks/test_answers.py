"""What solves a task does not exist where it is graded: not in the package, and not in a library."""

from __future__ import annotations

import contextlib

import pytest
from nbformat.v4 import new_code_cell

from mlhood.grading.bare.libraries import NOT_AVAILABLE
from mlhood.grading.checks.marks import grade_task
from mlhood.grading.checks.submission import Session
from mlhood.grading.projects import PROJECTS
from mlhood.grading.projects.p4.libraries import NESTS
from mlhood.grading.sandbox.kernel import SandboxPool
from mlhood.grading.sandbox.limits import Limits
from tests.attacks.attacked import LIMIT
from tests.grading.projects import p3_right, p4_right
from tests.grading.projects.test_variants_solved import imports, public_source, solutions

GIVEN = ("given-2", "P3-2-given-1", "P3-7-given-1", "P4-9-given-1")  # cells that solutions need
# By task, what would solve it or part of it: the package's own, and what libraries have.
ANSWERS = {
    "P1.1": ["mlhood.models:LeNet", "mlhood.models.networks:LeNet"],
    "P1.3": ["mlhood.models:train"],
    "P1.4": ["mlhood.exchange:export", "mlhood.exchange.export:export", "mlhood.exchange:lenet_onnx"],
    "P1.6": ["mlhood:compile"],
    "P2.2": ["mlhood.compiler.operators.windows:read_window", "mlhood.compiler.operators.elementwise:Relu.from_onnx"],
    "P2.3": ["mlhood.compiler.operators.convolution:Conv.infer", "onnx.shape_inference:infer_node_outputs"],
    "P2.4": ["mlhood.compiler.passes.fusion:fuse_activation", "mlhood.compiler.passes.rewriting:sweep"],
    "P2.5": ["mlhood.compiler.passes.removal:remove_dead_code"],
    "P2.6": ["mlhood.compiler.quantize.schema:choose_parameters"],
    "P2.7": [
        "mlhood.compiler.backends.interpreter:run",
        "mlhood.compiler.operators.convolution:Conv.evaluate",
        "mlhood.kernels:CONV2D",
        "torch:conv2d",
        "torch.nn.functional:conv2d",
        "jax.lax:conv",
        "jax.scipy.signal:correlate",
        "scipy.signal:correlate",
        "scipy.ndimage:correlate",
        "onnx.reference:ReferenceEvaluator",
        "onnxruntime:InferenceSession",
    ],
    "P2.8": ["mlhood.compiler.quantize.report:sqnr", "mlhood.compiler.quantize:sqnr"],
    "P2.9": ["mlhood.compiler.lir.lowering:lower"],
    "P2.10": ["mlhood.compiler.lir.program:with_deallocs", "mlhood.compiler.memory.plan:plan"],
    "P2.12": ["mlhood.compiler.backends.nmp.codegen.slicing:slice_bytes"],
    "P2.13": [
        "mlhood.compiler.backends.nmp.cycles:time_program",
        "mlhood.compiler.backends.nmp.codegen.convolution:convolution_program",
    ],
    "P2.14": [
        "mlhood.compiler.backends.nmp.codegen.search:search",
        "mlhood.compiler.backends.nmp.codegen.search:greedy",
    ],
    "P3.2": ["mlhood.kernels:CONV2D", "torch:conv2d", "scipy.ndimage:correlate", "numpy:einsum"],
    "P3.3": ["torch.nn.functional:unfold"],
    "P3.4": ["jax.lax:conv", "onnxruntime:InferenceSession", "mlhood.compiler.backends.interpreter:run"],
    "P3.7": ["mlhood.kernels:GEMM", "numpy:matmul"],
    "P4.2": ["mlhood.dataflow.sliced.sliced:Sliced"],
    "P4.3": ["mlhood.dataflow.slicing.traffic:lines_into", "mlhood.dataflow.cache.nest:simulate"],
    "P4.4": ["mlhood.dataflow.slicing.analysis:needs", "mlhood.dataflow.slicing.analysis:largest"],
    "P4.8": ["mlhood.dataflow.systolic:count", "mlhood.dataflow.systolic.simulator:simulate"],
    "P4.9": ["mlhood.jaxlab.xla.hlo:parse"],
    "P5.1": ["mlhood.jaxlab.operators.network:tree", "mlhood.jaxlab.operators.network:forward"],
    "P5.2": [
        "mlhood.jaxlab.operators.no_jax:softmax",
        "mlhood.jaxlab.autodiff.windows:columns",
        "mlhood.kernels:CONV2D",
        "scipy.special:softmax",
        "jax.scipy.special:softmax",
        "torch:conv2d",
        "onnxruntime:InferenceSession",
    ],
    "P5.5": [f"mlhood.jaxlab.tracing.tracer:{name}" for name in ("record", "evaluate", "live")],
    "P5.6": [
        "mlhood.jaxlab.autodiff:RULES",
        "mlhood.jaxlab.autodiff.rules:RULES",
        "mlhood.jaxlab.autodiff:backward",
        "jax:vjp",
    ],
    "P5.8": ["mlhood.jaxlab.training.train_loop:make_step"],
    "P5.12": ["mlhood.jaxlab.cluster.collectives:ring_bytes", "mlhood.jaxlab.cluster.scaling:step_seconds"],
}
# a function that is left out has its signature, and raises when it is called
REACH = """
import importlib, inspect
def reach(name):
    module, _, path = name.partition(":")
    try:
        found = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
        parameters = inspect.signature(found).parameters.values() if inspect.isroutine(found) else ()
        kept = {p.name: None for p in parameters if p.default is p.empty and p.kind is p.KEYWORD_ONLY}
        return found(*[None for p in parameters if p.default is p.empty and p.name not in kept], **kept)
    except BaseException as error:
        return error
"""
# rules of the importer that are there, since the operators are, but need what is left out
RULES = {
    "a rule of the table": "from mlhood.compiler.operators import IMPORT_RULES as R\ndef conv(x): return R['Conv'](x)",
    "the operator's rule": "from mlhood.compiler.operators.convolution import Conv\nconv = Conv.from_onnx",
}
WHAT_IS_LEFT = """
import gc
def needs(*sizes):
    left = [each for each in gc.get_objects() if getattr(each, "__name__", "") == "needs" and callable(each)]
    return next(each for each in left if "grading" in each.__module__)(*sizes)
"""


@pytest.fixture(scope="module")
def bare(bubblewrap, tmp_path_factory):
    """Return a function that returns the bare kernel of a task, each started when it is first asked for."""
    kernels = {}
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(SandboxPool(Limits(), prewarm=False))

        def kernel_of(task):
            if task.libraries not in kernels:
                kernels[task.libraries] = stack.enter_context(
                    pool.kernel(tmp_path_factory.mktemp("bare"), task.libraries)
                )
            return kernels[task.libraries]

        yield kernel_of


def task_of(task_id):
    return PROJECTS[task_id.partition(".")[0]].task(task_id)


def printed(kernel, expression):
    cell = new_code_cell(f"print({expression})")
    kernel.run(cell, LIMIT)
    return "".join(output.text for output in cell.outputs)


@pytest.mark.parametrize("task_id", ANSWERS)
def test_what_solves_a_task_does_not_exist(bare, task_id):
    kernel = bare(task_of(task_id))
    kernel.run(new_code_cell(REACH), LIMIT)
    for name in ANSWERS[task_id]:
        assert NOT_AVAILABLE in printed(kernel, f"reach({name!r})"), name


def graded(kernel, task_id, *sources):
    for source in sources:
        kernel.run(new_code_cell(source), LIMIT)
    return grade_task(task_of(task_id), Session(kernel, kernel.folder, kernel.scratch), 4711)


@pytest.mark.parametrize("source", RULES.values(), ids=RULES)
def test_the_rules_of_the_importer_earn_nothing(bare, source):
    result = graded(bare(task_of("P2.2")), "P2.2", imports(public_source("P2")), source)
    assert "conv_is_imported" in {check.name for check in result.checks if not check.earned}


# The suite takes one style of each task, except P3.7, which takes as long as the others together.
TASKS_OF = {"P3": ("P3.2", "P3.3", "P3.4", "P3.7"), "P4": ("P4.1", "P4.2", "P4.3", "P4.4", "P4.8", "P4.9")}
STYLES = [
    pytest.param(task, style, marks=() if style == "plain loops" and task != "P3.7" else pytest.mark.exhaustive)
    for project, styles in (("P3", p3_right.RIGHT), ("P4", p4_right.RIGHT))
    for task in TASKS_OF[project]
    for style, cells in styles.items()
    if any(name.startswith(task.replace(".", "-") + "-") for name in cells)
]


@pytest.mark.parametrize(("task_id", "style"), STYLES)
def test_right_solutions_need_nothing_else(bare, task_id, style):
    cells = {"P3": p3_right.RIGHT, "P4": p4_right.RIGHT}[task_id[:2]][style]
    source_notebook, kernel = public_source(task_id.partition(".")[0]), bare(task_of(task_id))
    given = [cell.source for cell in source_notebook.cells if cell.id in GIVEN]
    needed = ("P3.1", "P3.3", task_id)
    slugs = tuple(name.replace(".", "-") + "-" for name in needed)
    own = [source for name, source in cells.items() if name.startswith(slugs)]
    result = graded(kernel, task_id, imports(source_notebook), *given, *solutions(source_notebook, needed), *own)
    assert result.full, [(check.name, check.what, check.parts) for check in result.checks]


@pytest.mark.parametrize("compiled", ["", "import numba\n@numba.njit\n"], ids=["NumPy", "Numba"])
def test_a_missing_product_gets_a_hint(bare, compiled):
    source = f"{compiled}def gemm_reordered(a, b): return a @ b"
    result = graded(bare(task_of("P3.7")), "P3.7", "import numpy as np", source)
    assert "no product of matrices where this is graded" in result.checks[0].parts["hint"]


def test_a_check_leaves_no_answer_to_a_later_one(pool, tmp_path):
    with pool.kernel(tmp_path, NESTS) as kernel:
        source_notebook = public_source("P4")
        assert graded(kernel, "P4.2", imports(source_notebook), *solutions(source_notebook, ("P4.2",))).full
        assert graded(kernel, "P4.4", WHAT_IS_LEFT).earned == 0
