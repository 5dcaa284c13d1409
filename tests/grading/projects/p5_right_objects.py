"""Right solutions of P5 with the package."""

from __future__ import annotations

PACKAGE = {
    "P5-1-solution": """
from mlhood.jaxlab.operators import network
def to_tree(state):
    return jax.tree.map(jnp.asarray, network.tree(state))
""",
    "P5-1-solution-2": """
from functools import partial
from mlhood.jaxlab.operators import with_jax
block = partial(network.block, with_jax)
""",
    "P5-1-solution-3": """
resnet = jax.jit(partial(network.forward, with_jax))
""",
    "P5-2-solution": "from mlhood.jaxlab.operators.no_jax import conv2d\n",
    "P5-2-solution-2": "from mlhood.jaxlab.operators.no_jax import max_pool\n",
    "P5-2-solution-3": "from mlhood.jaxlab.operators.no_jax import add, batch_norm, relu\n",
    "P5-2-solution-5": "",
    "P5-2-solution-4": "from mlhood.jaxlab.operators.no_jax import dense, global_average_pool, softmax\n",
    "P5-5-solution": "from mlhood.jaxlab.tracing.tracer import record\n",
    "P5-5-solution-2": "from mlhood.jaxlab.tracing.tracer import evaluate\n",
    "P5-5-solution-3": "from mlhood.jaxlab.tracing.tracer import live\n",
    "P5-6-solution": """
from mlhood.jaxlab.autodiff import RULES
vjp_relu, vjp_add, vjp_dense = (RULES[op] for op in ("relu", "add", "dense"))
""",
    "P5-6-solution-5": "",
    "P5-6-solution-2": "vjp_conv2d = RULES['conv2d']\n",
    "P5-6-solution-3": "vjp_cross_entropy = RULES['cross_entropy']\n",
    "P5-6-solution-4": "from mlhood.jaxlab.autodiff import backward\n",
    "P5-12-solution-2": "from mlhood.jaxlab.cluster.scaling import step_seconds\n",
}
