"""What the passes and drawings look up by an operator's class."""

import onnx
import pytest

from mlhood.compiler.hir.describe import FAMILIES
from mlhood.compiler.operators import OPERATORS
from mlhood.compiler.operators.activation import ACTIVATIONS
from mlhood.compiler.quantize.quantize import RULES


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
def test_names_in_an_operator_are_known(operator):
    known = {schema.name for schema in onnx.defs.get_all_schemas_with_history()}
    assert set(operator.onnx) <= known
    assert operator.family in FAMILIES
    assert operator.quantization_rule in (None, *RULES)


@pytest.mark.parametrize("operator", ACTIVATIONS.values(), ids=ACTIVATIONS)
def test_every_activation_that_can_be_fused_can_be_quantised(operator):
    assert operator.quantization_rule == "rescale" or (
        operator.quantization_rule == "table" and operator.saturates_at.keys() == {1, 2}
    )


def test_every_quantisation_rule_is_used():
    assert {operator.quantization_rule for operator in OPERATORS.values()} >= RULES.keys()
