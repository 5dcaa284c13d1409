"""The libraries of P5's tasks: what the course gives for them is there, and what would solve them is not."""

from __future__ import annotations

from mlhood.grading.bare.libraries import Libraries

NUMPY = Libraries(packages=("numpy",))
TRACER = "mlhood.jaxlab.tracing.tracer"
AUTODIFF = "mlhood.jaxlab.autodiff"
TAPE = Libraries(
    packages=("numpy",),
    modules=(TRACER, f"{AUTODIFF}.tape", f"{AUTODIFF}.windows"),
    without=(
        *(f"{TRACER}.{name}" for name in ("record", "evaluate", "live")),
        f"{AUTODIFF}.tape.backward",
        f"{AUTODIFF}.rules",
        "mlhood.jaxlab.operators.network",
    ),
)
CLUSTER = "mlhood.jaxlab.cluster"
JAX = Libraries(
    packages=("jax", "optax"),
    modules=(
        "mlhood.jaxlab.operators.with_jax",
        "mlhood.jaxlab.training.cnn",
        f"{CLUSTER}.program",
        f"{CLUSTER}.launch",
    ),
    processes=True,  # those of a cluster
)
PLANS = Libraries(packages=("jax",), modules=(f"{CLUSTER}.plans",))  # with it comes what would solve other tasks
