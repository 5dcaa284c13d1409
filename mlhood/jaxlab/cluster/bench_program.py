"""The program of the cluster benchmark, run in each process: times steps with and without all-reduce, counts bytes.

python -m mlhood.jaxlab.cluster.bench_program FOLDER ROUNDS, started by `bench.measure`: writes FOLDER/RANK.json.

The bytes sent over TCP are the kernel's count for each open connection. Linux keeps them in struct tcp_info
(include/uapi/linux/tcp.h: tcpi_bytes_sent and tcpi_bytes_retrans, since 4.19). They count the payload, without headers,
and no other traffic, unlike the counters of a network interface.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mlhood.jaxlab.cluster.processes import initialize

_DESCRIPTORS = Path("/proc/self/fd")
_COUNTERS = struct.Struct("@QQ")  # bytes_sent, bytes_retrans
_OFFSET = 200
_MAX_SIZE = 512
INPUTS, HIDDEN, CLASSES, EXAMPLES = 784, 256, 10, 64
PROBES = (2**12, 2**23)  # bytes of the all-reduces that measure latency and bandwidth; the gradient's lie in between


def bytes_sent() -> int | None:
    """Return the bytes that this process's open TCP connections have sent, or None if the system does not count them.

    The difference of two calls is what was sent in between, if no connection was closed.
    """
    if not _DESCRIPTORS.is_dir() or not hasattr(socket, "TCP_INFO"):
        return None
    total = 0
    for descriptor in _DESCRIPTORS.iterdir():
        with contextlib.suppress(OSError):
            count = _bytes_sent(descriptor)
            if count is None:
                return None
            total += count
    return total


def _bytes_sent(descriptor: Path) -> int | None:
    """Return the bytes sent through a descriptor; 0 if it is not a TCP connection, None for a kernel before 4.19."""
    if not str(descriptor.readlink()).startswith("socket:"):
        return 0
    with socket.socket(fileno=os.dup(int(descriptor.name))) as connection:
        if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.type != socket.SOCK_STREAM:
            return 0
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _MAX_SIZE)
    if len(info) < _OFFSET + _COUNTERS.size:
        return None
    sent, retransmitted = _COUNTERS.unpack_from(info, _OFFSET)
    return sent - retransmitted


def main(folder: Path, rounds: int) -> None:
    """Measure in this process, and write the results."""
    initialize()
    import jax

    from mlhood.jaxlab.cluster import parallel
    from mlhood.jaxlab.cluster.mesh import mesh

    global_mesh = mesh(data=jax.device_count(), model=1)
    local_mesh = mesh(jax.local_devices(), data=jax.local_device_count(), model=1)
    params = parallel.init(0, INPUTS, HIDDEN, CLASSES)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((EXAMPLES * jax.device_count(), INPUTS)).astype(np.float32)
    y = rng.integers(0, CLASSES, len(x)).astype(np.int32)
    together = _call(parallel.by_jit(global_mesh), parallel.shard_inputs(global_mesh, params, x, y))
    local_inputs = parallel.shard_inputs(local_mesh, params, x[:EXAMPLES], y[:EXAMPLES])
    alone = _call(parallel.by_jit(local_mesh), local_inputs)
    probes = [_all_reduce(global_mesh, size) for size in PROBES]
    for call in (together, alone, *probes):
        call()

    before = bytes_sent()
    for _ in range(rounds):
        together()
    after = bytes_sent()
    results = {
        "bytes": None if before is None or after is None else (after - before) / rounds,
        "expected": parallel.predicted_bytes(global_mesh.shape, params, len(x))["data"],
        "arrays": len(params) + 1,
        "seconds": _median_seconds([together, alone, *probes], rounds),
    }
    (folder / f"{jax.process_index()}.json").write_text(json.dumps(results), encoding="utf-8")


def _call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[[], Any]:
    import jax

    return lambda: jax.block_until_ready(function(*arguments))


def _all_reduce(mesh: Any, size: int) -> Callable[[], Any]:
    """Return a call of one all-reduce of `size` bytes."""
    import jax
    from jax.sharding import PartitionSpec as P

    from mlhood.jaxlab.cluster.mesh import shard

    add = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x[0], "data"), mesh=mesh, in_specs=P("data"), out_specs=P()))
    zeros = np.zeros((mesh.shape["data"], size // 4), np.float32)
    return _call(add, (shard(mesh, {"x": zeros}, {"x": P("data")})["x"],))


def _median_seconds(calls: list[Callable[[], Any]], rounds: int) -> list[float]:
    """Return the median time of each call; interleaved in a fixed order, so that all processes make the same call."""
    seconds = np.empty((rounds, len(calls)))
    for i in range(rounds):
        for j, call in enumerate(calls):
            start = time.perf_counter()
            call()
            seconds[i, j] = time.perf_counter() - start
    return np.median(seconds, axis=0).tolist()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
