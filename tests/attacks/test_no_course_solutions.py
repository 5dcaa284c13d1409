"""Where P1 and P5 are graded, neither the package nor a library has what solves their tasks."""

from __future__ import annotations

from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell

import mlhood
from mlhood.grading.bare.libraries import NOT_AVAILABLE
from mlhood.grading.checks.marks import grade_task
from mlhood.grading.checks.submission import Session
from mlhood.grading.projects import PROJECTS
from mlhood.grading.sandbox.limits import Limits
from mlhood.grading.sandbox.pool import SandboxPool
from tests.attacks.attacked import LIMIT

PACKAGE = Path(mlhood.__file__).parent
GIVEN = {
    "P1": "import numpy as np, onnx, onnxruntime, torch\nfrom torch import nn\nfrom mlhood import exchange, models",
    "P5": (
        "import numpy as np\nimport jax, jax.numpy as jnp\n"
        "jax.config.update('jax_num_cpu_devices', 8)"  # what P5.10 and P5.11 need
    ),
}


def read(name: str, *parts: str) -> str:
    """Source that executes a file of the package, and then takes a function from it."""
    return f"exec(open({str(PACKAGE.joinpath(*parts))!r}).read())\nassert {name}"


CHEATS = {
    "P1.1": {
        "the course's class": "LeNetLayers = models.LeNet",
        "of its module": "from mlhood.models.networks import LeNet as LeNetLayers",
        "its file": read("LeNet", "models", "networks.py") + "\nLeNetLayers = LeNet",
    },
    "P1.2": {
        "by name": "LeNet = getattr(__import__('mlhood.models', fromlist=['x']), 'LeNet')",
        "a class attribute": "class Mine:\n    network = models.LeNet\nLeNet = Mine.network",
    },
    "P1.3": {"the course's training": "def train(model, x, y): return models.train(model, x, y, epochs=9)"},
    "P1.4": {
        "the course's exporter": "def to_onnx(model, path): exchange.export(model, torch.zeros(2, 1, 32, 32), path)",
        "of its module": (
            "from mlhood.exchange.export import export\n"
            "def to_onnx(model, path): export(model, torch.zeros(2, 1, 32, 32), path)"
        ),
        "its trained network": "def to_onnx(model, path): exchange.lenet_onnx(path)",
    },
    "P1.6": {
        "the compiler's": "import mlhood\ndef operator_table(path): return mlhood.compile(path).profile()",
    },
    "P5.1": {
        "the course's network": (
            "from mlhood.jaxlab.operators import network, with_jax\nto_tree = network.tree\n"
            "def block(params, x, stride): return network.block(with_jax, params, x, stride)\n"
            "def resnet(params, x): return network.forward(with_jax, params, x)"
        ),
        "its file": read("tree", "jaxlab", "operators", "network.py") + "\nto_tree = tree",
    },
    "P5.2": {
        "the course's operators": "from mlhood.jaxlab.operators.no_jax import add, conv2d, relu, softmax",
        "its windows": "from mlhood.jaxlab.autodiff.windows import columns as conv2d",
        "its kernels": "from mlhood.kernels import CONV2D\nconv2d = CONV2D['im2col_blas']",
        "scipy": "import scipy.ndimage as s\nimport scipy.special\nconv2d, softmax = s.convolve, scipy.special.softmax",
        "jax's scipy": "import jax.scipy.special\ndef softmax(x): return np.asarray(jax.scipy.special.softmax(x))",
        "torch": "import torch\ndef relu(x): return torch.relu(torch.from_numpy(x)).numpy()\nconv2d = torch.conv2d",
        "onnxruntime": "import onnxruntime as o\ndef relu(x): return o.InferenceSession(b'').run(None, {'x': x})[0]",
        "another Python": (
            "import subprocess, sys\ndef softmax(x):\n"
            "    subprocess.run([sys.executable, '-c', 'import scipy'], check=True)\n"
            "    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)"
        ),
        "a forged error": "raise ModuleNotFoundError(name='mine')\nfrom mlhood.jaxlab.operators.no_jax import relu",
    },
    "P5.5": {
        "the course's tracer": "from mlhood.jaxlab.tracing.tracer import evaluate, live, record",
        "its attributes": (
            "import mlhood.jaxlab.tracing.tracer as t\nrecord, evaluate, live = (vars(t)[n] for n in "
            "('record', 'evaluate', 'live'))"
        ),
        "its default": (
            "from mlhood.jaxlab.tracing import tracer\nrecord = tracer.trace.__kwdefaults__['record']\n"
            "evaluate = live = tracer.trace"
        ),
        "its file": "from mlhood.jaxlab.tracing import tracer\nexec(open(tracer.__file__).read())",
    },
    "P5.6": {
        "the course's tape": "from mlhood.jaxlab.autodiff import RULES, backward\nvjp_relu = RULES['relu']",
        "its rules": "from mlhood.jaxlab.autodiff.rules import RULES\nvjp_dense = RULES['dense']",
        "its other direction": (
            "from mlhood.jaxlab import autodiff\n"
            "def vjp_relu(g, y, x): return (g * autodiff.jvp(autodiff.relu, (x,), (np.ones_like(x),))[1],)"
        ),
        "jax": "import jax\ndef vjp_relu(g, y, x): return jax.vjp(jax.nn.relu, x)[1](g)",
    },
    "P5.7": {
        "the course's gradients": "from mlhood.jaxlab.training.per_example import per_example, clipped as clipped_mean"
    },
    "P5.8": {"the course's step": "from mlhood.jaxlab.training.train_loop import cross_entropy, make_step, train"},
    "P5.9": {"the course's primitive": "from mlhood.jaxlab.tracing.primitive import fake_quantize"},
    "P5.10": {
        "the course's gradient": (
            "from mlhood.jaxlab.cluster import parallel\n"
            "def parallel_gradient(mesh, loss): return parallel.by_jit(mesh)"
        ),
        "its shards": (
            "from mlhood.jaxlab.cluster.mesh import shard\nfrom jax.sharding import PartitionSpec as P\n"
            "def split_batch(mesh, x): return shard(mesh, {'x': x}, {'x': P('data')})['x']"
        ),
    },
    "P5.12": {
        "the course's rings": (
            "from mlhood.jaxlab.cluster.collectives import ring_bytes as course\n"
            "from mlhood.jaxlab.cluster.scaling import step_seconds\n"
            "def ring_bytes(total, devices): return course('all-reduce', total, devices)"
        ),
    },
    "P5.14": {"the grader's plan": "from mlhood.grading.projects.p5.reference import best_plan"},
}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """Bare kernels, each started when it is first asked for."""
    with pytest.MonkeyPatch.context() as patch, SandboxPool(Limits(), prewarm=False) as pool:
        patch.setenv("OMP_NUM_THREADS", "1")
        opened = {}

        def kernel(libraries, given):
            if libraries not in opened:
                opened[libraries] = pool.kernel(tmp_path_factory.mktemp("bare"), libraries).__enter__()
                opened[libraries].run(new_code_cell(given), LIMIT)
            return opened[libraries]

        yield kernel
        for each in opened.values():
            each.__exit__()


@pytest.mark.parametrize(
    ("task_id", "source"),
    [
        pytest.param(task_id, source, id=f"{task_id} {name}")
        for task_id, cheats in CHEATS.items()
        for name, source in cheats.items()
    ],
)
def test_what_solves_a_task_earns_nothing(kernels, task_id, source):
    project = task_id.partition(".")[0]
    task = PROJECTS[project].task(task_id)
    assert task
    assert task.libraries
    kernel = kernels(task.libraries, GIVEN[project])
    outcome = kernel.run(new_code_cell(source), LIMIT)
    result = grade_task(task, Session(kernel, kernel.folder, kernel.scratch), 4711)
    assert result.earned == 0
    messages = " ".join(" ".join([check.what, *check.parts.values()]) for check in result.checks)
    assert NOT_AVAILABLE in messages or outcome.error, messages
