"""LeNet as a function of its operators; `mlhood.jaxlab.operators.network` has the same of ResNet and of its blocks.

The same lines run in NumPy, in JAX, on a tape and on dual numbers.
"""

from __future__ import annotations

from typing import Any


def lenet(ops: Any, params: dict[str, Any], x: Any) -> Any:
    """Run the network of `mlhood.models.lenet`.

    Args:
        ops: Has the operators: `mlhood.jaxlab.autodiff`, `no_jax` or `with_jax`.
        params: conv1, conv2, fc1, fc2 and fc3, each with a weight and a bias: `network.tree` of its state.
        x: float32 [N, 1, 32, 32].

    Returns:
        Logits, float32 [N, classes].
    """
    for name in ("conv1", "conv2"):
        x = ops.relu(ops.conv2d(x, params[name]["weight"], params[name]["bias"]))
        x = ops.max_pool(x, kernel=2, stride=2, padding=0)
    x = x.reshape(x.shape[0], -1)
    for name in ("fc1", "fc2"):
        x = ops.relu(ops.dense(x, params[name]["weight"], params[name]["bias"]))
    return ops.dense(x, params["fc3"]["weight"], params["fc3"]["bias"])
