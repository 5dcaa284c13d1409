"""Thousands of damaged files: each compiles, or is refused with an error of the family; none crashes, hangs or swells.

To see one again: PYTHONPATH=. python tests/compiler/fuzz_worker.py CORPUS NUMBER NUMBER+1
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import onnx
import pytest

from mlhood.exchange import export
from tests.compiler.corpus import write_corpus

MUTATIONS = int(os.environ.get("MLHOOD_FUZZ_MUTATIONS", "3000"))
FIRST = int(os.environ.get("MLHOOD_FUZZ_FIRST", "0"))
WORKER = Path(__file__).with_name("fuzz_worker.py")
SECONDS = 300  # of a worker that sleeps, which no limit of CPU time would end


def survey(corpus: Path, first: int, stop: int) -> list[dict]:
    """Return how each mutation ended; one that ends its process is told as "killed", and the rest goes on."""
    answers: list[dict] = []
    while first < stop:
        said, code = _work(corpus, first, stop)
        answers += [one for one in said if "outcome" in one]
        done = max((one["number"] for one in said if "outcome" in one), default=first - 1)
        if done + 1 == stop:
            return answers
        if not said:
            raise RuntimeError(f"the worker does not start: exit code {code}")
        answers.append({"number": done + 1, "outcome": "killed", "message": f"exit code {code}"})
        first = done + 2
    return answers


def _work(corpus: Path, first: int, stop: int) -> tuple[list[dict], int]:
    command = [sys.executable, str(WORKER), str(corpus), str(first), str(stop)]
    paths = [str(WORKER.parents[2])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=SECONDS)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")], done.returncode


@pytest.fixture(scope="session")
def corpus(lenet_onnx, lenet_bn, tf_lenet, tmp_path_factory):
    import torch

    folder = tmp_path_factory.mktemp("corpus")
    kept = export(lenet_bn, torch.zeros(1, 1, 32, 32), folder / "kept", keep_batchnorm=True)
    networks = {"lenet": onnx.load(lenet_onnx), "lenet_bn": onnx.load(kept), "tf_lenet": tf_lenet}
    kept.unlink()
    write_corpus(folder, networks)
    return folder


@pytest.fixture(scope="session")
def answers(corpus):
    return survey(corpus, FIRST, FIRST + MUTATIONS)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory and CPU time as Linux has them")
def test_every_mutation_compiles_or_is_refused(answers):
    print(json.dumps(summary(answers), indent=1))
    wrong = [one for one in answers if one["outcome"] not in ("imported", "ran", "refused")]
    shown = "\n".join(f"mutation {one['number']}: {one['outcome']}\n{one['message']}" for one in wrong[:10])
    assert not wrong, f"{len(wrong)} of {len(answers)} mutations:\n{shown}"
    assert len(answers) == MUTATIONS


def summary(answers: list[dict]) -> dict:
    """Return the figures of a survey."""
    outcomes = Counter(one["outcome"] for one in answers)
    errors = Counter(f"{one['class']}: {one['what'][:80]}" for one in answers if one["outcome"] == "refused")
    slowest = max(answers, key=lambda one: float(one.get("cpu", 0)))
    return {
        "mutations": len(answers),
        "outcomes": dict(outcomes),
        "errors": dict(errors.most_common()),
        "slowest": {key: slowest.get(key) for key in ("number", "cpu", "outcome")},
    }
