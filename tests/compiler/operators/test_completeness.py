"""Every operator answers every question that the compiler asks of it, with a rule or with a reason why it has none."""

from dataclasses import dataclass
from typing import ClassVar

import onnx
import pytest

from mlhood.compiler.hir.describe import FAMILIES
from mlhood.compiler.hir.operator import QUESTIONS, Operator, Unsupported, supports, unsupported
from mlhood.compiler.operators import OPERATORS
from mlhood.compiler.operators.activation import ACTIVATIONS
from mlhood.compiler.operators.base import Elementwise
from mlhood.compiler.quantize.quantize import RULES

# Members that answer a question, where they are called otherwise.
ANSWERS = {"evaluate": ("evaluate", "evaluate_typed"), "from_onnx": ("from_onnx", "onnx")}


def unanswered(operator: type[Operator]) -> list[str]:
    """Return the questions that neither the operator nor a base other than `Operator` itself answers."""
    declared = set().union(*(vars(base) for base in operator.__mro__[: operator.__mro__.index(Operator)]))
    return [question for question in QUESTIONS if declared.isdisjoint(ANSWERS.get(question, (question,)))]


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
def test_every_operator_answers_every_question(operator):
    assert unanswered(operator) == []
    for question in QUESTIONS:
        answer = getattr(operator, question)
        if isinstance(answer, Unsupported):
            assert len(answer.reason.split()) > 2, question
    assert supports(operator, "infer")
    assert operator.family in FAMILIES
    assert isinstance(operator.quantization_rule, Unsupported) or operator.quantization_rule in RULES


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
def test_every_operator_is_imported_or_says_what_makes_it(operator):
    known = {schema.name for schema in onnx.defs.get_all_schemas_with_history()}
    assert set(operator.onnx) <= known
    assert bool(operator.onnx) != isinstance(operator.from_onnx, Unsupported)


@pytest.mark.parametrize("operator", ACTIVATIONS.values(), ids=ACTIVATIONS)
def test_every_activation_that_can_be_fused_can_be_quantised(operator):
    assert operator.quantization_rule == "rescale" or (
        operator.quantization_rule == "table" and operator.saturates_at.keys() == {1, 2}
    )


def test_every_quantisation_rule_is_used():
    assert {operator.quantization_rule for operator in OPERATORS.values()} >= RULES.keys()


# -- the test itself


def test_an_operator_that_answers_nothing_is_found():
    class Silent(Operator):
        pass

    assert unanswered(Silent) == list(QUESTIONS)
    assert not any(supports(Silent, question) for question in QUESTIONS)


def test_a_base_and_a_reason_count_as_answers():
    @dataclass(frozen=True)
    class Half(Elementwise):
        onnx: ClassVar = ("Relu",)
        family: ClassVar = "activation"
        value_range = unsupported("nothing is known about it")

    assert unanswered(Half) == ["infer", "evaluate", "to_onnx", "quantization_rule"]
    assert supports(Half, "sink_transpose")
    assert not supports(Half, "value_range")
    assert Half().value_range(None) is None
