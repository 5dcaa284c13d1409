"""Probes with several devices and processes, run in the student's process; their answers are claims to be checked."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from mlhood.grading.checks.probes import globals_of, patched_globals
from mlhood.grading.projects.p5.probes import flat_program, on_device, square_loss

PROCESS_COUNT = re.compile(r"a cluster of (\d+) processes")
COMMAND = """
import sys
from mlhood.jaxlab.cluster.launch import launch
launch(sys.argv[2:], 2, timeout=float(sys.argv[1]))
"""
GATHERED = "the whole batch on one device"
# Runs the script under its own name, where a process has only its own part of the batch; prints its process count, and
# where the loss is computed on all rows in one device: a part of the batch, or an example under `vmap`, has fewer rows.
RUNNER = f"""
import os, runpy, sys
from contextlib import suppress
import jax
import jax.numpy as jnp
import numpy as np
from mlhood.jaxlab.cluster import processes, program
whole, mean_loss = program.data, program.loss
def own_part(seed):
    params, x, y = whole(seed)
    rank, count = (int(os.environ[name]) for name in (processes.PROCESS, processes.PROCESSES))
    others = np.arange(len(x)) * count // len(x) != rank
    return program.Data(params, np.where(others[:, None], np.float32(np.nan), x), y)
def instrumented_loss(params, x, y):
    shape = np.shape(x)
    def check_sharding(sharding):
        with suppress(Exception):  # under vmap, it has another rank
            if sharding.shard_shape(shape) == shape:
                print({GATHERED!r}, flush=True)
    if shape[:1] == (program.EXAMPLES,):
        jax.debug.inspect_array_sharding(jnp.asarray(x), callback=check_sharding)
    return mean_loss(params, x, y)
program.data, program.loss = own_part, instrumented_loss
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
print(f"a cluster of {{jax.process_count()}} processes", flush=True)
"""


def _mesh(axis: str, devices: int) -> Mesh:
    available = jax.devices()
    if len(available) < devices:
        raise RuntimeError(
            f'{len(available)} devices instead of 8: run jax.config.update("jax_num_cpu_devices", 8) before other cells'
        )
    return Mesh(np.array(available[:devices]), (axis,))


def split(function: Callable, x: np.ndarray, devices: int) -> list[Any]:
    """Return what each device holds of the result of `split_batch`, with the number of the device."""
    return _shards(function(_mesh("data", devices), jnp.asarray(x)))


def _shards(array: Any) -> list[Any]:
    return [[shard.device.id, np.asarray(shard.data)] for shard in array.addressable_shards]


def on_mesh(function: Callable, arguments: list[Any], devices: int) -> dict[str, Any]:
    """Call what `parallel_gradient` returns for `square_loss`, or `two_layers`, on arrays that are not sharded yet.

    Returns:
        What each device has of each array in the result (`values`, see `split`), the `program`, a function of the
        leaves of its arguments, and whether it has `donated` any of them.
    """
    gradient = isinstance(arguments[0], dict)
    run = function(_mesh("data", devices), square_loss) if gradient else function(_mesh("model", devices))
    copies = jax.tree.map(jnp.array, arguments)  # NumPy's own memory cannot be donated
    values = [_shards(leaf) for leaf in jax.tree.leaves(run(*copies))]
    donated = any(leaf.is_deleted() for leaf in jax.tree.leaves(copies))
    with _placing_what_is_traced(run):
        return {"values": values, "program": flat_program(run, arguments), "donated": donated}


@contextmanager
def _placing_what_is_traced(function: Callable) -> Iterator[None]:
    """Let `jax.device_put` be binding for what is traced, too: the compiler is free to place that elsewhere."""
    original = jax.device_put

    def device_put(x: Any, device: Any = None, **options: Any) -> Any:
        traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(x))
        places = jax.tree.leaves(device)
        if traced and places and all(isinstance(place, NamedSharding) for place in places):
            return jax.lax.with_sharding_constraint(x, device)
        return original(x, device, **options)

    imported = {name: device_put for name, value in globals_of(function).items() if value is original}
    jax.device_put = device_put
    try:
        with patched_globals(function, **imported):
            yield
    finally:
        jax.device_put = original


def plain_plan(function: Callable, batch: int, widths: list[int]) -> Any:
    """Return the student's plan in plain data: the arguments of each `PartitionSpec`, or what it is instead."""
    plan = function(batch, tuple(widths))
    if not isinstance(plan, dict):
        return plan
    return {name: list(spec) if isinstance(spec, PartitionSpec) else repr(spec) for name, spec in plan.items()}


def counted(function: Callable, params: Any) -> Any:
    """Call `all_reduce_bytes` on a tree of arrays."""
    return function(on_device(params))


def run_on_cluster(script: str, seed: int, out: str, seconds: float) -> dict[str, Any]:
    """Run a script of the notebook's folder as two processes, so many seconds at most.

    Returns:
        The exit `code`, the end of the `output`, the process count that each of the `processes` reported, whether the
        batch was `gathered` for the loss, and the `arrays` of the file that they have written; None if there is none.
    """
    command = [sys.executable, "-c", COMMAND, f"{seconds:.0f}", "python", "-c", RUNNER, script, str(seed), out]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 20, stdin=subprocess.DEVNULL)
    arrays = None
    if Path(out).is_file():
        with np.load(out, allow_pickle=False) as file:
            arrays = dict(file)
    processes = [int(count) for count in PROCESS_COUNT.findall(done.stdout)]
    output = (done.stdout + done.stderr)[-3000:]
    gathered = GATHERED in done.stdout
    return {"code": done.returncode, "output": output, "processes": processes, "gathered": gathered, "arrays": arrays}
