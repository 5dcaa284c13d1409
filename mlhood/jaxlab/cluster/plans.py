"""A training step with a sharding for each of its arrays, compiled to count what its devices compute and communicate.

The step is the gradient of a network of dense layers without biases, h1 = relu(x @ w1), h2 = relu(h1 @ w2), and so on;
the last layer has no relu, and the loss is the mean square of its result. The rows of x, the examples, are divided
among the devices. A plan says for each weight and each h how it is sharded; a gradient is sharded as its weight. If the
network is a part of a larger one, the step also gives the gradient of x, whose rows are divided as those of x. Which
plan moves the fewest bytes depends on the sizes (A. Krizhevsky, "One weird trick for parallelizing convolutional neural
networks", arXiv:1404.5997, 2014).

>>> data_parallel = {"w1": P(), "w2": P(), "h1": P("devices"), "h2": P("devices")}
>>> measure(data_parallel, batch=64, widths=(32, 48, 16)).sent  # an all-reduce of both gradients
16128.0
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from mlhood.errors import ClusterError
from mlhood.jaxlab.cluster.collectives import Collective, collectives
from mlhood.jaxlab.xla.hlo import parse

AXIS = "devices"
DEVICES = 8
SPECS = (P(), P(AXIS), P(None, AXIS))
"""The plans' specifications: replicated, rows divided, columns divided."""


@dataclass(frozen=True)
class StepCost:
    """What one step costs.

    Args:
        collectives: What the devices communicate, in the order of execution.
        flops: Operations of each device, counted by XLA.
    """

    collectives: list[Collective]
    flops: float

    @property
    def sent(self) -> float:
        """Bytes that each device sends, in rings (see `collectives.ring_bytes`)."""
        return float(sum(each.sent for each in self.collectives))


def names(layers: int) -> list[str]:
    """Return the names of a plan's arrays: w1 to wL and h1 to hL."""
    return [*(f"w{i}" for i in range(1, layers + 1)), *(f"h{i}" for i in range(1, layers + 1))]


def measure(
    plan: Mapping[str, P], batch: int, widths: Sequence[int], devices: int = DEVICES, *, input_gradient: bool = False
) -> StepCost:
    """Compile the step with a plan, and count.

    Args:
        plan: A `PartitionSpec` for each of `names`: one of `SPECS`.
        batch: Rows of x.
        widths: Columns of x, then of each layer's result; w1 is [widths[0], widths[1]].
        devices: Devices of the mesh.
        input_gradient: Whether the step also gives the gradient of x.

    Raises:
        ClusterError: The plan is incomplete, or has another specification; or there are too few devices.
    """
    layers = len(widths) - 1
    shardings = _shardings(plan, layers, devices)
    weights = [shardings[f"w{i}"] for i in range(1, layers + 1)]
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in itertools.pairwise(widths)]
    x = jax.ShapeDtypeStruct((batch, widths[0]), jnp.float32)

    def loss(weights: Sequence[Any], x: Any) -> Any:
        for i, w in enumerate(weights, start=1):
            x = x @ w if i == layers else jax.nn.relu(x @ w)
            x = jax.lax.with_sharding_constraint(x, shardings[f"h{i}"])
        return jnp.mean(x * x)

    rows = NamedSharding(weights[0].mesh, P(AXIS))
    gradient, results = (jax.grad(loss, (0, 1)), (weights, rows)) if input_gradient else (jax.grad(loss), weights)
    step = jax.jit(gradient, in_shardings=(weights, rows), out_shardings=results)
    compiled = step.lower(shapes, x).compile()
    flops = (compiled.cost_analysis() or {}).get("flops", 0.0)
    return StepCost(collectives(parse(compiled.as_text() or "")), flops)


def measure_all(
    cases: Sequence[tuple[Mapping[str, Sequence[str | None]], int, Sequence[int]]], input_gradient: bool = False
) -> list[list[float]]:
    """Measure plans in plain data, in a separate process: `sent` and `flops` of each (plan, batch, widths).

    The specification of an array is the list of `PartitionSpec`'s arguments.
    """
    jax.config.update("jax_num_cpu_devices", DEVICES)
    costs = [
        measure({name: P(*spec) for name, spec in plan.items()}, batch, widths, input_gradient=input_gradient)
        for plan, batch, widths in cases
    ]
    return [[cost.sent, cost.flops] for cost in costs]


def _shardings(plan: Mapping[str, P], layers: int, devices: int) -> dict[str, NamedSharding]:
    available = jax.devices()
    if len(available) < devices:
        todo = 'jax.config.update("jax_num_cpu_devices", 8), before JAX is first used'
        raise ClusterError("too few devices", expected=f"{devices}", got=len(available), todo=todo)
    mesh = Mesh(np.array(available[:devices]), (AXIS,), axis_types=(AxisType.Auto,))
    missing = [name for name in names(layers) if name not in plan]
    if missing:
        raise ClusterError("the plan is incomplete", expected=", ".join(names(layers)), got=f"no {', '.join(missing)}")
    for name, spec in plan.items():
        if tuple(spec) not in {(), (None,), (None, None), (AXIS,), (AXIS, None), (None, AXIS)}:
            raise ClusterError("unexpected sharding", where=name, expected=", ".join(map(str, SPECS)), got=spec)
    return {name: NamedSharding(mesh, plan[name]) for name in names(layers)}
