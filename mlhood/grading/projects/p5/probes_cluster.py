"""Questions about many devices and processes, asked in the student's process; the answers are claims."""

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
KNOWN = re.compile(r"a cluster of (\d+) processes")
COMMAND = "from mlhood.cli import main; main()"
# the script, as it is run by its name, and what its process knows of the others at the end
RUNNER = (
    "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__'); import jax; "
    "print(f'a cluster of {jax.process_count()} processes', flush=True)"
)
SECONDS = 90


def _mesh(axis: str, devices: int) -> Mesh:
    found = jax.devices()
    if len(found) < devices:
        raise RuntimeError(
            f'there are {len(found)} devices and not 8: jax.config.update("jax_num_cpu_devices", 8) comes first'
        )
    return Mesh(np.array(found[:devices]), (axis,))


def split(function: Callable, x: np.ndarray, devices: int) -> dict[str, Any]:
    """What `split_batch` makes of x: the `value`, and of the `parts` on devices first and last row, and the rest."""
    found = function(_mesh("data", devices), jnp.asarray(x))
    parts = []
    for shard in found.addressable_shards:
        rows = range(*shard.index[0].indices(found.shape[0]))
        parts.append([rows.start, rows.stop, *shard.data.shape[1:]])
    return {"value": np.asarray(found), "parts": parts}


def gradient(function: Callable, params: Any, x: np.ndarray, y: np.ndarray, devices: int) -> dict[str, Any]:
    """What `parallel_gradient` makes of `square_loss` and a batch that is laid along the mesh.

    Returns:
        The `value`, whether it is `replicated`, and the `collectives` of the compiled program.
    """
    mesh = _mesh("data", devices)
    made = function(mesh, square_loss)
    whole = NamedSharding(mesh, PartitionSpec())
    batch = [jax.device_put(one, NamedSharding(mesh, PartitionSpec("data"))) for one in (x, y)]
    weights = jax.device_put(params, whole)
    found = made(weights, *batch)
    replicated = all(leaf.sharding.is_equivalent_to(whole, leaf.ndim) for leaf in jax.tree.leaves(found))
    value = jax.tree.map(np.asarray, found)
    return {"value": value, "replicated": replicated, "collectives": _collectives(made, [weights, *batch])}


def layers(function: Callable, arrays: list[np.ndarray], devices: int) -> dict[str, Any]:
    """What `two_layers` makes of x, w1, b1, w2 and b2: the `value`, and the `collectives` of the compiled program.

    Arguments lie nowhere in particular; where the function leaves it at that, they are laid along the mesh for it.
    """
    mesh = _mesh("model", devices)
    made = function(mesh)
    collectives = _collectives(made, on_device(arrays))
    if not collectives:
        specs = (None,), (None, "model"), ("model",), ("model", None), (None,)
        places = [NamedSharding(mesh, PartitionSpec(*spec)) for spec in specs]
        with suppress(Exception):  # it has places of its own for them
            laid = _collectives(made, [jax.device_put(*pair) for pair in zip(arrays, places, strict=True)])
            collectives = laid if laid == ["all-reduce"] else []
    return {"value": np.asarray(made(*on_device(arrays))), "collectives": collectives}


def _collectives(function: Callable, arguments: list[Any]) -> list[str]:
    lowered = jax.jit(lambda *traced: function(*traced)).lower(*arguments)
    return COLLECTIVE.findall(lowered.compile().as_text() or "")


def counted(function: Callable, params: Any) -> Any:
    """What a function says of a tree of arrays."""
    return function(on_device(params))


def clustered(script: str, seed: int, out: str) -> dict[str, Any]:
    """Run a script of the notebook's folder as two processes.

    Returns:
        The exit `code`, what they `said`, how many `processes` each of them knew of, and the `arrays` of the file that
        they have written; None if there is none.
    """
    command = [sys.executable, "-c", COMMAND, "cluster", "-n", "2", "--timeout", str(SECONDS), "--",
               "python", "-c", RUNNER, script, str(seed), out]  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS + 20, stdin=subprocess.DEVNULL)
    arrays = None
    if Path(out).is_file():
        with np.load(out, allow_pickle=False) as file:
            arrays = dict(file)
    known = [int(number) for number in KNOWN.findall(ended.stdout)]
    said = (ended.stdout + ended.stderr)[-3000:]
    return {"code": ended.returncode, "said": said, "processes": known, "arrays": arrays}
