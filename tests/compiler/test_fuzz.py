"""Thousands of corrupted files: each compiles or is rejected with an MlhoodError; none crashes, hangs or leaks memory.

To reproduce one: PYTHONPATH=. python tests/compiler/fuzz_worker.py CORPUS INDEX INDEX+1
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from mlhood.exchange import export
from tests.compiler.corpus import write_corpus

MUTATIONS = 400  # in each of the parts
WORKER = Path(__file__).with_name("fuzz_worker.py")
TIMEOUT = 300  # seconds; for a worker that blocks, which the limit on CPU time does not catch


def run_mutations(corpus: Path, first: int, stop: int) -> list[dict]:
    """Return the outcome of each mutation; one that crashes its process is "killed", and a new process continues."""
    outcomes: list[dict] = []
    while first < stop:
        reports, code = _run_worker(corpus, first, stop)
        outcomes += [report for report in reports if "outcome" in report]
        last = max((report["index"] for report in reports if "outcome" in report), default=first - 1)
        if last + 1 == stop:
            return outcomes
        if not reports:
            raise RuntimeError(f"the worker does not start: exit code {code}")
        outcomes.append({"index": last + 1, "outcome": "killed", "message": f"exit code {code}"})
        first = last + 2
    return outcomes


def _run_worker(corpus: Path, first: int, stop: int) -> tuple[list[dict], int]:
    command = [sys.executable, str(WORKER), str(corpus), str(first), str(stop)]
    environment = {**os.environ, "PYTHONPATH": str(WORKER.parents[2]), "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=TIMEOUT)
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")], result.returncode


@pytest.fixture(scope="session")
def corpus(lenet_onnx, lenet_bn, tf_lenet, tmp_path_factory):
    import torch

    folder = tmp_path_factory.mktemp("corpus")
    kept = export(lenet_bn, torch.zeros(1, 1, 32, 32), folder / "kept", keep_batchnorm=True)
    networks = {"lenet": onnx.load(lenet_onnx), "lenet_bn": onnx.load(kept), "tf_lenet": tf_lenet}
    kept.unlink()
    write_corpus(folder, networks)
    return folder


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's limits of memory and CPU time")
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.exhaustive) for part in (1, 2))])
def test_every_mutation_compiles_or_is_rejected(corpus, part):
    outcomes = run_mutations(corpus, part * MUTATIONS, (part + 1) * MUTATIONS)
    failures = [entry for entry in outcomes if entry["outcome"] not in ("imported", "ran", "rejected")]
    details = "\n".join(f"mutation {entry['index']}: {entry['outcome']}\n{entry['message']}" for entry in failures[:10])
    assert not failures, f"{len(failures)} of {len(outcomes)} mutations:\n{details}"
    assert len(outcomes) == MUTATIONS
