"""One process of the fuzz test: takes mutations through the compiler, and says of each how it ended.

    python fuzz_worker.py CORPUS_FOLDER FIRST STOP

One line of JSON a mutation, written as soon as it is done, so that of one that kills the process the number is known.
Memory is limited by the system. So is the CPU time of one mutation: far over what any should take, so that it finds
what hangs and does not measure.
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
from mlhood.compiler.hir.text import to_text
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.parse import constants_by_digest, parse
from mlhood.compiler.passes import optimize
from mlhood.errors import MlhoodError
from tests.compiler.mutations import mutation

CPU_SECONDS = 6.0
MEMORY = 1 << 30
LARGEST_RUN = 1 << 16


def compile_and_run(data: bytes) -> str:
    """Take a file as far as it goes; return how far that is.

    Raises:
        MlhoodError: The file, or the graph, is not valid; the only error that there should be.
    """
    graph = import_model(data)
    verify(graph)
    text = to_text(graph)
    again = parse(text, constants_by_digest(graph))
    verify(again)
    if to_text(again) != text:
        raise ValueError("the text does not give the graph back")
    optimized = optimize(graph, check=True)
    parse(to_text(optimized), constants_by_digest(optimized))
    inputs = _inputs(graph)
    if inputs is None:
        return "imported"
    for one in (graph, optimized):
        Interpreter(one, limit=1 << 26).run(inputs)
    return "ran"


def _inputs(graph: Graph) -> dict[str, np.ndarray] | None:
    """Return zeros for each input, open axes one long; None where that is much."""
    shapes = {
        name: [1 if isinstance(axis, str) else axis for axis in one.type.shape]
        for name, one in graph.placeholders.items()
    }
    if sum(math.prod(max(size, 1) for size in shape) for shape in shapes.values()) > LARGEST_RUN:
        return None
    return {name: np.zeros(shape, graph.placeholders[name].type.dtype) for name, shape in shapes.items()}


def ending(data: bytes) -> dict[str, str]:
    """Return how a mutation ended: "imported", "ran", "refused" with the message, or "traceback"."""
    try:
        return {"outcome": compile_and_run(data)}
    except MlhoodError as error:
        if _cause(error, MemoryError):
            return {"outcome": "memory", "message": str(error)}
        return {"outcome": "refused", "class": type(error).__name__, "what": error.what, "message": str(error)}
    except Exception:
        return {"outcome": "traceback", "message": traceback.format_exc(limit=-6)}


def _cause(error: BaseException | None, kind: type[BaseException]) -> bool:
    seen: set[int] = set()  # an error that was raised from itself is its own cause
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
        ending(data)  # so that what is loaded late does not count
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for number in range(int(first), int(stop)):
        data = mutation(number, corpus)
        print(json.dumps({"number": number, "started": True}), flush=True)
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        start = time.process_time()
        answer = ending(data)
        signal.setitimer(signal.ITIMER_PROF, 0)
        answer["cpu"] = str(round(time.process_time() - start, 4))
        print(json.dumps({"number": number, **answer}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
