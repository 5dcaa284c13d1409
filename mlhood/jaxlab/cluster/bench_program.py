"""What each process of the cluster's benchmark does: steps with and without the all-reduce, timed, and bytes counted.

python -m mlhood.jaxlab.cluster.bench_program FOLDER ROUNDS, started by `bench.measure`: writes FOLDER/PROCESS.json.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mlhood.jaxlab.cluster.processes import initialize
from mlhood.jaxlab.cluster.sockets import sent

INPUTS, HIDDEN, CLASSES, EXAMPLES = 784, 256, 10, 64
PROBES = (2**12, 2**23)  # bytes of the all-reduces that tell the latency and the bandwidth; the gradient lies between


def main(folder: Path, rounds: int) -> None:
    """Time this process's part and write what was found."""
    initialize()
    import jax

    from mlhood.jaxlab.cluster import parallel
    from mlhood.jaxlab.cluster.mesh import mesh

    everywhere = mesh(data=jax.device_count(), model=1)
    here = mesh(jax.local_devices(), data=jax.local_device_count(), model=1)
    params = parallel.init(0, INPUTS, HIDDEN, CLASSES)
    draw = np.random.default_rng(0)
    x = draw.standard_normal((EXAMPLES * jax.device_count(), INPUTS)).astype(np.float32)
    y = draw.integers(0, CLASSES, len(x)).astype(np.int32)
    together = _call(parallel.by_jit(everywhere), parallel.laid(everywhere, params, x, y))
    alone = _call(parallel.by_jit(here), parallel.laid(here, params, x[:EXAMPLES], y[:EXAMPLES]))
    probes = [_sum(everywhere, size) for size in PROBES]
    for call in (together, alone, *probes):
        call()

    before = sent()
    for _ in range(rounds):
        together()
    after = sent()
    found = {
        "bytes": None if before is None or after is None else (after - before) / rounds,
        "expected": parallel.expected(everywhere.shape, params, len(x))["data"],
        "arrays": len(params) + 1,
        "seconds": _times([together, alone, *probes], rounds),
    }
    (folder / f"{jax.process_index()}.json").write_text(json.dumps(found), encoding="utf-8")


def _call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[[], Any]:
    import jax

    return lambda: jax.block_until_ready(function(*arguments))


def _sum(mesh: Any, size: int) -> Callable[[], Any]:
    """Return an all-reduce of so many bytes by itself."""
    import jax
    from jax.sharding import PartitionSpec as P

    from mlhood.jaxlab.cluster.mesh import lay

    add = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x[0], "data"), mesh=mesh, in_specs=P("data"), out_specs=P()))
    zeros = np.zeros((mesh.shape["data"], size // 4), np.float32)
    return _call(add, (lay(mesh, {"x": zeros}, {"x": P("data")})["x"],))


def _times(calls: list[Callable[[], Any]], rounds: int) -> list[float]:
    """Return the median time of each, called in turn: all processes call the same at the same time, or wait."""
    found = []
    for _ in range(rounds):
        found.append([])
        for call in calls:
            start = time.perf_counter()
            call()
            found[-1].append(time.perf_counter() - start)
    return np.median(found, axis=0).tolist()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
