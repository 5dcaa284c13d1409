"""The stages of a compiled function: what happens in which of them, not how long they take."""

import time
from dataclasses import asdict

import jax
import jax.numpy as jnp
import numpy as np

from mlhood.jaxlab.bench import stages


def test_each_stage_is_timed():
    measured = stages(lambda x, tree: jnp.tanh(x) @ tree["w"], np.ones((4, 4), np.float32), {"w": np.eye(4)})
    assert all(seconds > 0 for seconds in asdict(measured).values())


def test_python_runs_once_and_while_tracing():
    calls = []

    def slow(x):
        calls.append(x)
        time.sleep(0.05)
        return x + 1

    first, second = stages(slow, 1.0), stages(slow, 1.0)
    assert len(calls) == 2
    assert all(isinstance(x, jax.core.Tracer) for x in calls)
    assert min(first.trace, second.trace) >= 0.05


def test_results_are_waited_for():
    def wait(x):
        time.sleep(0.05)
        return np.asarray(x)

    callback = lambda x: jax.pure_callback(wait, jax.ShapeDtypeStruct((), jnp.float32), x)  # noqa: E731
    measured = stages(callback, np.float32(1))
    assert min(measured.first, measured.run) >= 0.05
