"""A worker process of the fuzz test: compiles mutations and reports the outcome of each.

    python fuzz_worker.py CORPUS_FOLDER FIRST STOP

Prints one line of JSON per mutation as soon as it has finished, so that a mutation that crashes the process can be
identified. The operating system limits the memory, and the CPU time of a mutation to far more than any should take, to
detect hangs.
"""

from __future__ import annotations

import json
import math
import resource
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

import numpy as np

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.hir import Graph, verify
from mlhood.compiler.hir.parse import constants_by_digest, parse
from mlhood.compiler.hir.text import to_text
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.passes import optimize
from mlhood.errors import MlhoodError
from tests.compiler.mutations import mutation

CPU_SECONDS = 6.0
MEMORY = 1 << 30
MAX_INPUT_ELEMENTS = 1 << 16


def compile_and_run(data: bytes) -> str:
    """Compile a file and run it if its inputs are small; return "imported" or "ran".

    Raises:
        MlhoodError: The file or the graph is invalid; no other exception is acceptable.
    """
    graph = import_model(data)
    verify(graph)
    text = to_text(graph)
    parsed = parse(text, constants_by_digest(graph))
    verify(parsed)
    if to_text(parsed) != text:
        raise ValueError("the text does not round-trip")
    optimized = optimize(graph, check=True)
    parse(to_text(optimized), constants_by_digest(optimized))
    inputs = _inputs(graph)
    if inputs is None:
        return "imported"
    for g in (graph, optimized):
        Interpreter(g, limit=1 << 26).run(inputs)
    return "ran"


def _inputs(graph: Graph) -> dict[str, np.ndarray] | None:
    """Return zeros for each input, with dynamic axes of size 1; None if they are too large."""
    shapes = {
        name: [1 if isinstance(axis, str) else axis for axis in value.type.shape]
        for name, value in graph.placeholders.items()
    }
    if sum(math.prod(max(size, 1) for size in shape) for shape in shapes.values()) > MAX_INPUT_ELEMENTS:
        return None
    return {name: np.zeros(shape, graph.placeholders[name].type.dtype) for name, shape in shapes.items()}


def run_mutation(data: bytes) -> dict[str, str]:
    """Return the outcome of a mutation: "imported", "ran", "rejected" with the message, "memory" or "traceback"."""
    try:
        return {"outcome": compile_and_run(data)}
    except MlhoodError as error:
        if _has_cause(error, MemoryError):
            return {"outcome": "memory", "message": str(error)}
        return {"outcome": "rejected", "class": type(error).__name__, "what": error.what, "message": str(error)}
    except Exception:
        return {"outcome": "traceback", "message": traceback.format_exc(limit=-6)}


def _has_cause(error: BaseException | None, kind: type[BaseException]) -> bool:
    seen: set[int] = set()  # an exception raised from itself is its own cause
    while error is not None and id(error) not in seen:
        if isinstance(error, kind):
            return True
        seen.add(id(error))
        error = error.__cause__
    return False


def main(folder: str, first: str, stop: str) -> None:
    corpus = [path.read_bytes() for path in sorted(Path(folder).glob("*.onnx"))]
    warnings.simplefilter("error")
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    for data in corpus:
        run_mutation(data)  # warm-up: lazy imports must not count towards the limits
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for index in range(int(first), int(stop)):
        data = mutation(index, corpus)
        print(json.dumps({"index": index, "started": True}), flush=True)
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        start = time.process_time()
        outcome = run_mutation(data)
        signal.setitimer(signal.ITIMER_PROF, 0)
        outcome["cpu"] = str(round(time.process_time() - start, 4))
        print(json.dumps({"index": index, **outcome}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
