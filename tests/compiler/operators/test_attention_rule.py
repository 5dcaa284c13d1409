"""ONNX's Attention: its node tests, models with dynamic dimensions against ONNX Runtime, and what is refused."""

import numpy as np
import onnx
import pytest

from mlhood.compiler.onnx.importer import import_model
from mlhood.errors import CompilerError
from tests.compiler.operators.agreement import assert_agreement


@pytest.mark.parametrize("causal", [0, 1])
def test_packed_heads_with_open_axes(causal):
    text = (
        '<ir_version: 8, opset_import: ["": 23]> test '
        "(float[b, l, 24] q, float[b, s, 12] k, float[b, s, 12] v, float[l, s] m) => (float[b, l, 24] y) "
        f"{{ y = Attention<q_num_heads = 4, kv_num_heads = 2, is_causal = {causal}>(q, k, v, m) }}"
    )
    rng = np.random.default_rng(0)
    shapes = {"q": (2, 5, 24), "k": (2, 5, 12), "v": (2, 5, 12), "m": (5, 5)}
    inputs = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    assert_agreement(onnx.parser.parse_model(text), inputs)


def test_softcap_is_imported_by_the_definition():
    text = (
        '<ir_version: 10, opset_import: ["": 23]> test (float[1, 2, 3, 4] q) => (float[1, 2, 3, 4] y) '
        "{ y = Attention<softcap = 2.0>(q, q, q) }"
    )
    assert_agreement(
        onnx.parser.parse_model(text), {"q": np.random.default_rng(0).standard_normal((1, 2, 3, 4), np.float32)}
    )


def test_what_is_refused():
    text = (
        '<ir_version: 10, opset_import: ["": 24]> test '
        "(float[1, 2, 3, 4] q, int64[1] lengths) => (float[1, 2, 3, 4] y) { y = Attention(q, q, q, , , , lengths) }"
    )
    with pytest.raises(CompilerError, match="lengths of keys"):
        import_model(onnx.parser.parse_model(text))
