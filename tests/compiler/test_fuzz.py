"""Hundreds of corrupted files: each compiles or is rejected with an MlhoodError, and with no other exception.

To reproduce one: pass its index to `mutation`.
"""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.hir import verify
from mlhood.compiler.hir.parse import constants_by_digest, parse
from mlhood.compiler.hir.text import to_text
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.passes import optimize
from mlhood.errors import MlhoodError
from mlhood.exchange import export
from tests.compiler.corpus import corpus_of
from tests.compiler.mutations import mutation

MUTATIONS = 400  # in each of the parts
MAX_INPUT_ELEMENTS = 1 << 16


@pytest.fixture(scope="session")
def corpus(lenet_onnx, lenet_bn, tf_lenet, tmp_path_factory):
    import torch

    folder = tmp_path_factory.mktemp("corpus")
    kept = export(lenet_bn, torch.zeros(1, 1, 32, 32), folder / "kept", keep_batchnorm=True)
    return corpus_of({"lenet": onnx.load(lenet_onnx), "lenet_bn": onnx.load(kept), "tf_lenet": tf_lenet}, folder)


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.exhaustive) for part in (1, 2))])
def test_every_mutation_compiles_or_is_rejected(corpus, part):
    for index in range(part * MUTATIONS, (part + 1) * MUTATIONS):
        try:
            compile_and_run(mutation(index, corpus))
        except MlhoodError:
            continue
        except Exception as error:
            raise AssertionError(f"mutation {index}") from error


def compile_and_run(data: bytes) -> None:
    """Compile a file, and run it if its inputs are small."""
    graph = import_model(data)
    verify(graph)
    text = to_text(graph)
    parsed = parse(text, constants_by_digest(graph))
    verify(parsed)
    assert to_text(parsed) == text
    optimized = optimize(graph, check=True)
    parse(to_text(optimized), constants_by_digest(optimized))
    shapes = {
        name: [1 if isinstance(axis, str) else axis for axis in value.type.shape]
        for name, value in graph.placeholders.items()
    }
    if sum(math.prod(max(size, 1) for size in shape) for shape in shapes.values()) <= MAX_INPUT_ELEMENTS:
        inputs = {name: np.zeros(shape, graph.placeholders[name].type.dtype) for name, shape in shapes.items()}
        for each in (graph, optimized):
            Interpreter(each, limit=1 << 26).run(inputs)
