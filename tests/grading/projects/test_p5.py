"""The checks of P5: their references in the test's own process, and what needs JAX in one kernel for all tests."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from nbformat.v4 import new_code_cell
from torch.nn import functional

from mlhood.grading.checks.submission import CheckContext, Session, Submission
from mlhood.grading.execution.kernel import Kernel
from mlhood.grading.notebooks.notebook import read
from mlhood.grading.projects.p5 import P5, cluster, plans, primitives, probes_numpy, reference
from mlhood.grading.projects.solution import Solution
from mlhood.grading.rpc.codec import Remote
from mlhood.grading.rpc.transport import LocalTransport
from mlhood.jaxlab.cluster.scaling import step_seconds
from tests.grading.projects.examples import edited
from tests.grading.projects.local_grading import graded, lost, names_in
from tests.grading.projects.test_nonsense import TASKS, assert_all_fail, functions
from tests.grading.projects.test_variants_solved import imports, public_source
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[3]
SETUP = """
import jax
jax.config.update("jax_num_cpu_devices", 8)
"""
OPERATORS = [edited(f"P5-2-solution{part}") for part in ("", "-2", "-3", "-5", "-4")]
TAPE = [
    "from mlhood.jaxlab.autodiff.windows import columns, scatter",
    edited("P5-2-solution-4"),
    *(edited(f"P5-6-solution{part}") for part in ("", "-5", "-2", "-3", "-4")),
]


def draw(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# -- the references


@pytest.mark.parametrize(("stride", "padding"), [(1, 0), (2, 1), (3, 2)])
def test_gradients_of_the_convolution_in_the_notebook_agree_with_torch(stride, padding):
    arrays = draw(2, 3, 8, 7), draw(4, 3, 3, 2), draw(4)
    x, w, bias = (torch.from_numpy(array).requires_grad_() for array in arrays)
    y = functional.conv2d(x, w, bias, stride, padding)
    g = draw(*y.shape, seed=2)
    y.backward(torch.from_numpy(g))
    gradients = Solution("P5", P5.parameters)("vjp_conv2d", g, y.detach().numpy(), *arrays, stride, padding)
    for got, tensor in zip(gradients, (x, w, bias), strict=True):
        np.testing.assert_allclose(got, tensor.grad, rtol=1e-3, atol=1e-4)


def test_gradients_of_examples_in_the_notebook_agree_with_torch():
    params = {"hidden": {"w": draw(3, 4), "b": draw(4)}, "out": {"w": draw(4, 5), "b": draw(5)}}
    x, y = draw(6, 3), np.array([0, 1, 2, 3, 4, 0])
    probe = "mlhood.grading.projects.p5.probes:per_example"
    gradients = Solution("P5", P5.parameters)("per_example", params, x, y, probe=probe)
    for index in range(len(x)):
        leaves = reference.tree_map(lambda array: torch.from_numpy(array).requires_grad_(), params)
        hidden = torch.tanh(torch.from_numpy(x[index]) @ leaves["hidden"]["w"] + leaves["hidden"]["b"])
        logits = hidden @ leaves["out"]["w"] + leaves["out"]["b"]
        functional.cross_entropy(logits, torch.tensor(y[index])).backward()
        for name, part in leaves.items():
            for key, tensor in part.items():
                np.testing.assert_allclose(gradients[name][key][index], tensor.grad, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("option", primitives.QUANTIZE_OPTION.values)
@pytest.mark.parametrize("seed", range(10))
def test_drawn_values_are_far_from_rounding_ties(seed, option, tmp_path):
    session = Session(LocalTransport({}), tmp_path, tmp_path)
    parameters = SimpleNamespace(quantize_option=option)
    submission = Submission(session, CheckContext(np.random.default_rng(seed), parameters=parameters))
    x, drawn = primitives._draw(submission, 5, 8)
    steps = x.astype(np.float64) / drawn["scale"]
    low, high = primitives._range(**drawn)
    inside = (steps >= low) & (steps <= high)
    assert 0 < inside.sum() < x.size
    assert np.abs(steps - np.floor(steps) - 0.5)[inside].min() > 0.05
    assert np.abs(np.abs(steps - (low + high) / 2) - (high - low) / 2).min() > 0.05


# -- the grading process


def test_the_grading_process_does_not_import_jax():
    code = "import sys, mlhood.grading.projects.p5; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_lines_are_counted_and_the_trace_function_is_restored():
    before = sys.gettrace()
    few, many = (
        probes_numpy.counted_lines(lambda x: [value + 1 for value in x], [np.zeros(size)], {})["lines"]
        for size in (4, 400)
    )
    assert sys.gettrace() is before
    assert few < many


# -- one mistake costs points only once


def test_a_convolution_without_bias_has_two_gradients(tmp_path):
    wrong = edited("P5-6-solution-2", ("(dx, dw) if bias is None else ", ""))
    messages = lost(names_in(*TAPE, wrong), tmp_path, "P5.6")
    assert list(messages) == ["filters_get_what_their_windows_saw"]
    assert "2 in a tuple" in messages["filters_get_what_their_windows_saw"]


def test_the_error_of_a_script_is_reported_without_the_lines_after_it():
    output = """[1]   File "cluster_step.py", line 12, in <module>
[1] jax._src.core.ShardingTypeError: contracting dimensions are sharded
[1] --------------------
[1] For simplicity, JAX has removed its internal frames from the traceback of the following exception.
cluster: process 1 of 2 failed; the others were ended
  what to do: read its lines"""
    assert cluster._final_error(output) == "jax._src.core.ShardingTypeError: contracting dimensions are sharded"
    assert cluster._final_error("[0] nothing to say\n") == "[0] nothing to say"


STEPS = {  # seconds of compute, bytes per second, and latency, by the rows of the model answer to P5.16
    "none": (0.1, 1.25e9, 14e-6),
    "ten times the bandwidth": (0.1, 12.5e9, 14e-6),
    "a tenth of the latency": (0.1, 1.25e9, 1.4e-6),
    "ten times the batch (1 s of compute)": (1.0, 1.25e9, 14e-6),
}


def test_the_model_answer_about_a_thousand_devices_says_what_step_seconds_computes():
    (answer,) = (cell.source for cell in read(ROOT / "P5.ipynb").cells if cell.id == "P5-16-question")
    rows = re.findall(r"^\| (.+) \| ([\d.]+) ms \| (\d+) \| (\d+) \|$", answer, re.MULTILINE)
    assert [name for name, *_ in rows] == list(STEPS)
    for name, milliseconds, devices, gain in rows:
        compute, bandwidth, latency = STEPS[name]
        steps = {n: step_seconds(compute, 76_712, n, bandwidth, latency) for n in range(1, 1000)}
        fastest = min(steps, key=lambda n: steps[n])
        found = f"{1e3 * steps[fastest]:.1f}", str(fastest), f"{compute / steps[fastest]:.0f}"
        assert found == (milliseconds, devices, gain)


# -- in a kernel


@pytest.fixture(scope="module")
def kernel(tmp_path_factory) -> Iterator[Kernel]:
    with Kernel(tmp_path_factory.mktemp("p5")) as kernel:
        run(kernel, SETUP, imports(public_source("P5")))
        yield kernel


def run(kernel: Kernel, *sources: str) -> None:
    for source in sources:
        assert kernel.run(new_code_cell(source), PATIENCE).error == ""


def test_trees_of_arrays_cross_both_ways(kernel):
    submission = Submission(Session(kernel, kernel.folder, kernel.scratch))
    run(kernel, "def doubled(tree):\n    return jax.tree.map(lambda leaf: 2 * jnp.asarray(leaf), tree)")
    run(kernel, "key, half = jax.random.key(0), jnp.ones(3, jnp.float16)")
    sent = {"a": {"w": draw(2, 3), "n": np.arange(3, dtype=np.int32)}, "b": [draw(4)]}
    got = submission.call("doubled", sent)
    np.testing.assert_array_equal(got["a"]["w"], 2 * sent["a"]["w"])
    assert got["a"]["n"].dtype == np.int32
    np.testing.assert_array_equal(got["b"][0], 2 * sent["b"][0])
    assert submission.value("half").dtype == np.float16
    assert isinstance(submission.value("key"), Remote)


def test_a_right_resnet_passes_on_a_wrong_tree_of_its_own(kernel, tmp_path):
    step = "int(part) if branch is tree.get(path[0]) else part"  # the blocks of a stage
    tree = edited("P5-1-solution", ("setdefault(part", f"setdefault({step}"))
    resnet = edited("P5-1-solution-3", ('("0", "1")', "(0, 1)"), ('index == "0"', "index == 0"))
    run(kernel, *(tree | edited("P5-1-solution-2") | resnet).values())
    assert list(lost(kernel, tmp_path, "P5.1")) == ["names_become_a_tree"]


ENDLESS_ROOT = """
from jax.lax import while_loop
@jax.jit
def square_root(a):
    return while_loop(lambda x: x == x, lambda x: (x + a / jnp.maximum(x, 1e-30)) / 2, a + 1)
"""


def test_endless_loops_are_reported_without_waiting_and_a_state_may_be_one_array(kernel, tmp_path):
    state = edited("P5-4-solution-3", ("total / count, (count, total)", "total / count, jnp.stack([count, total])"))
    mask = edited("P5-4-solution-4", ("rate, x.shape)", "rate, (len(x), 1))"))  # covers whole rows
    run(kernel, *(edited("P5-4-solution") | state | mask).values(), ENDLESS_ROOT)
    messages = lost(kernel, tmp_path, "P5.4")
    assert list(messages) == ["roots_are_found", "the_root_of_zero_stops", "as_many_as_asked_are_dropped"]
    assert "does not stop" in messages["roots_are_found"]
    run(kernel, "import jax.lax as lax")
    submission = Submission(Session(kernel, kernel.folder, kernel.scratch))
    assert submission.value("while_loop").text.startswith("<function while_loop")


def test_a_rule_that_was_wrong_is_right_once_its_cell_has_run_again(kernel, tmp_path):
    wrong = edited("P5-9-solution", ("ShapedArray(x.shape, x.dtype)", "ShapedArray(x.shape, jnp.float16)"))
    run(kernel, *(edited("P5-9-given-1") | wrong).values())
    assert lost(kernel, tmp_path, "P5.9", "it_is_compiled")
    run(kernel, *edited("P5-9-solution").values())
    assert not lost(kernel, tmp_path, "P5.9", "it_is_compiled")


@pytest.mark.parametrize("answer", ["{'a': [1, 'x']}"])
@pytest.mark.parametrize("task", [task.id for task in P5.tasks if task.id not in TASKS])
def test_nonsense_in_jax_passes_no_check_and_breaks_none(task, answer, kernel, tmp_path):
    run(kernel, f"{' = '.join(functions('P5'))} = lambda *arguments, **options: {answer}")
    assert_all_fail(graded(kernel, tmp_path, task))


def test_lines_that_compute_nothing_are_not_counted(tmp_path):
    zeros = """
def conv2d(x, w, bias=None, stride=1, padding=0):
    return np.zeros((len(x), len(w), x.shape[2] - w.shape[2] + 1, x.shape[3] - w.shape[3] + 1))
"""
    messages = graded(names_in({"conv2d": zeros}), tmp_path, "P5.2")
    assert "do not resemble the right ones" in messages["pixels_are_not_looped_over"]


# -- the plans of P5.14

MEASURED = """
def measured(specs, batch, widths, input_gradient):
    plan = {name: P(*spec) for name, spec in specs.items()}
    cost = plans.measure(plan, batch, widths, input_gradient=input_gradient)
    return [cost.sent, cost.flops]
"""


@pytest.mark.parametrize(
    ("batch", "widths"),
    [
        (168, (320, 104, 64)),  # data parallelism after columns
        pytest.param(208, (64, 424, 432), marks=pytest.mark.exhaustive),
    ],
)
def test_no_plan_that_divides_the_work_sends_less_than_the_course(kernel, batch, widths):
    run(kernel, "from mlhood.jaxlab.cluster import plans", "from jax.sharding import PartitionSpec as P", MEASURED)
    submission = Submission(Session(kernel, kernel.folder, kernel.scratch))
    a, b, c = widths
    share = 2 * batch * (2 * a * b + 3 * b * c) / 8
    best = Solution("P5", P5.parameters)("best_plan", batch, widths, probe=plans.PLAIN_PLAN)
    least, _ = submission.call("measured", best, batch, list(widths), False)
    for specs in itertools.product(([], ["devices"], [None, "devices"]), repeat=4):
        plan = dict(zip(("w1", "h1", "w2", "h2"), specs, strict=True))
        sent, flops = submission.call("measured", plan, batch, list(widths), False)
        assert sent >= least or flops > plans.SPARE_WORK * share, plan


def test_a_plan_that_is_incomplete_or_unknown_is_refused(kernel):
    run(kernel, "from mlhood.jaxlab.cluster import plans", "from jax.sharding import PartitionSpec as P")
    source = "plans.measure({plan}, 8, (8, 8))"
    for plan, reason in (("{'w1': P()}", "incomplete"), ("{'w1': P('x'), 'h1': P()}", "unexpected")):
        outcome = kernel.run(new_code_cell(source.format(plan=plan)), PATIENCE)
        assert reason in outcome.error


# -- what a program claims is what it does

SUMS_OF_NOTHING = """
def two_layers(mesh):
    def run(x, w1, b1, w2, b2):
        nothing = 0 * jax.lax.psum(x[0, 0] * jax.lax.axis_index("model"), "model")
        return jnp.maximum(x @ w1 + b1, 0) @ w2 + b2 + nothing
    return jax.jit(jax.shard_map(run, mesh=mesh, in_specs=(P(),) * 5, out_specs=P()))

def parallel_gradient(mesh, loss):
    def run(params, x, y):
        nothing = 0 * jax.lax.psum(x[0, 0] * jax.lax.axis_index("data"), "data")
        return jax.tree.map(lambda leaf: leaf + nothing, jax.grad(loss)(params, x, y))
    return jax.jit(jax.shard_map(run, mesh=mesh, in_specs=(P(),) * 3, out_specs=P()))
"""

A_NAME_ALONE = """
fake_quantize_p.def_impl(lambda x, scale: x)
def fake_quantize(x, *, scale):
    steps = jnp.floor(fake_quantize_p.bind(x, scale=scale) / scale + 0.5)
    return jnp.minimum(jnp.maximum(steps, -128), 127) * scale
"""


@pytest.mark.parametrize(
    ("task", "check"), [("P5.10", "devices_add_up_their_gradients"), ("P5.11", "one_sum_joins_the_parts")]
)
def test_a_sum_of_nothing_divides_no_work(task, check, kernel, tmp_path):
    run(kernel, "from jax.sharding import PartitionSpec as P", SUMS_OF_NOTHING)
    messages = graded(kernel, tmp_path, task, check)
    assert all("each device does all of the work" in message for message in messages.values()), messages


def test_a_name_in_a_jaxpr_does_no_work(kernel, tmp_path):
    run(kernel, *(edited("P5-9-given-1") | edited("P5-9-solution")).values(), A_NAME_ALONE)
    (message,) = graded(kernel, tmp_path, "P5.9", "it_stands_in_the_jaxpr").values()
    assert "other operations do the work" in message
