"""Probes with several devices and processes, run in the student's process; their answers are claims to be checked."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from mlhood.grading.projects.p5.probes import on_device, square_loss

COLLECTIVE = re.compile(r" (all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute)(?:-start)?\(")
PROCESS_COUNT = re.compile(r"a cluster of (\d+) processes")
COMMAND = "from mlhood.cli import main; main()"
# runs the script under its own name and prints its process count at the end
RUNNER = (
    "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__'); import jax; "
    "print(f'a cluster of {jax.process_count()} processes', flush=True)"
)
SECONDS = 90


def _mesh(axis: str, devices: int) -> Mesh:
    available = jax.devices()
    if len(available) < devices:
        raise RuntimeError(
            f'{len(available)} devices instead of 8: run jax.config.update("jax_num_cpu_devices", 8) before other cells'
        )
    return Mesh(np.array(available[:devices]), (axis,))


def shards(function: Callable, x: np.ndarray, devices: int) -> dict[str, Any]:
    """Return the `value` of `split_batch`, and its `shards`: first row, end, and the sizes of the other axes."""
    array = function(_mesh("data", devices), jnp.asarray(x))
    layout = []
    for shard in array.addressable_shards:
        rows = range(*shard.index[0].indices(array.shape[0]))
        layout.append([rows.start, rows.stop, *shard.data.shape[1:]])
    return {"value": np.asarray(array), "shards": layout}


def gradient(function: Callable, params: Any, x: np.ndarray, y: np.ndarray, devices: int) -> dict[str, Any]:
    """Call `parallel_gradient` for `square_loss` and a batch that is sharded over the mesh.

    Returns:
        The `value`, whether it is `replicated`, and the compiled `program` (see `_program`).
    """
    mesh = _mesh("data", devices)
    compute = function(mesh, square_loss)
    replicated = NamedSharding(mesh, PartitionSpec())
    batch = [jax.device_put(array, NamedSharding(mesh, PartitionSpec("data"))) for array in (x, y)]
    weights = jax.device_put(params, replicated)
    result = compute(weights, *batch)
    return {
        "value": jax.tree.map(np.asarray, result),
        "replicated": all(leaf.sharding.is_equivalent_to(replicated, leaf.ndim) for leaf in jax.tree.leaves(result)),
        "program": _program(compute, [weights, *batch]),
    }


def layers(function: Callable, arrays: list[np.ndarray], devices: int) -> dict[str, Any]:
    """Return the `value` of `two_layers` for x, w1, b1, w2 and b2, and the compiled `program` (see `_program`).

    The arguments are not sharded. If the function does not shard them itself, they are sharded for it.
    """
    mesh = _mesh("model", devices)
    forward = function(mesh)
    program = _program(forward, on_device(arrays))
    if not program["collectives"]:
        specs = (None,), (None, "model"), ("model",), ("model", None), (None,)
        shardings = [NamedSharding(mesh, PartitionSpec(*spec)) for spec in specs]
        with suppress(Exception):  # it has other shardings of its own
            sharded = [jax.device_put(*pair) for pair in zip(arrays, shardings, strict=True)]
            again = _program(forward, sharded)
            program = again if again["collectives"] == ["all-reduce"] else program
    return {"value": np.asarray(forward(*on_device(arrays))), "program": program}


def _program(function: Callable, arguments: list[Any]) -> dict[str, Any]:
    """Compile a function, and run what was compiled.

    Returns:
        The `collectives` of the program, the `value` that it computes, and the `flops` of one device; 0 if unknown.
    """
    compiled = jax.jit(lambda *traced: function(*traced)).lower(*arguments).compile()
    flops = (compiled.cost_analysis() or {}).get("flops", 0.0)
    value = jax.tree.map(np.asarray, compiled(*arguments))
    return {"collectives": COLLECTIVE.findall(compiled.as_text() or ""), "value": value, "flops": flops}


def counted(function: Callable, params: Any) -> Any:
    """Call `all_reduce_bytes` on a tree of arrays."""
    return function(on_device(params))


def run_on_cluster(script: str, seed: int, out: str) -> dict[str, Any]:
    """Run a script of the notebook's folder as two processes.

    Returns:
        The exit `code`, the end of the `output`, the process count that each of the `processes` reported, and the
        `arrays` of the file that they have written; None if there is none.
    """
    cluster = [sys.executable, "-c", COMMAND, "cluster", "-n", "2", "--timeout", str(SECONDS), "--"]
    command = [*cluster, "python", "-c", RUNNER, script, str(seed), out]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS + 20, stdin=subprocess.DEVNULL)
    arrays = None
    if Path(out).is_file():
        with np.load(out, allow_pickle=False) as file:
            arrays = dict(file)
    processes = [int(count) for count in PROCESS_COUNT.findall(done.stdout)]
    output = (done.stdout + done.stderr)[-3000:]
    return {"code": done.returncode, "output": output, "processes": processes, "arrays": arrays}
