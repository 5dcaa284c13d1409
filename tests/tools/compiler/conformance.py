"""Run ONNX's backend test suite on the compiler, and score it by tiers of operators."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import pandas as pd
from onnx import TensorProto, numpy_helper
from onnx.backend.test.runner import Runner

from mlhood.errors import MlhoodError
from tests.tools.compiler.onnx_backend import MlhoodBackend

LENET = frozenset(
    {"Add", "AveragePool", "Constant", "Conv", "Flatten", "Gemm", "Identity", "LogSoftmax", "MatMul", "MaxPool"}
    | {"Relu", "Reshape", "Sigmoid", "Softmax", "Tanh"}
)
RESNET = LENET | {"BatchNormalization", "GlobalAveragePool", "ReduceMean", "Sum"}
MOBILENET = RESNET | {"Clip"}
CLASSIC = (
    MOBILENET
    | {"Concat", "Dropout", "LRN", "LeakyRelu", "Mul", "Pad", "Shape"}
    | {"Slice", "Squeeze", "Transpose", "Unsqueeze"}
)
QUANTIZED = frozenset(
    {"ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger"}
    | {"QLinearConv", "QLinearMatMul", "QuantizeLinear"}
)
TIERS: dict[str, frozenset[str]] = {
    "1 LeNet": LENET,
    "2 + ResNet": RESNET,
    "3 + MobileNet": MOBILENET,
    "4 + classic CNNs, tf2onnx": CLASSIC,
    "5 quantised, 8 bit": QUANTIZED,
}

_FLOAT_ELEMENTS = {TensorProto.FLOAT, TensorProto.INT64}
_QUANTIZED_ELEMENTS = {TensorProto.FLOAT, TensorProto.INT8, TensorProto.UINT8, TensorProto.INT32}

_INFERENCE_ELEMENTS = {TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL}
_NOT_INFERENCE = frozenset({"If", "Loop", "Scan", "Bernoulli", "Multinomial"})  # control flow and random numbers
_NOT_TENSORS = ("Sequence", "Optional", "String", "Random")  # in the names of operators

_CORNERS = (
    "length_resized is the integer length of the result, as in torch and ONNX Runtime, whose exports have scales with "
    "align_corners; ONNX's reference implementation takes length * scale"
)
# Tests that the compiler fails on purpose, each with the reason.
EXCLUDES: dict[str, str] = {
    f"test_resize_downsample_scales_{mode}_align_corners": _CORNERS for mode in ("linear", "cubic")
}


@dataclass(frozen=True)
class Case:
    """One test of the suite.

    Args:
        name: Its name in the suite.
        suite: "node", "simple", "pytorch-converted" or "pytorch-operator".
        model: The model to run.
        data: Inputs and expected outputs.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
    """

    name: str
    suite: str
    model: onnx.ModelProto
    data: list[tuple[list[Any], list[Any]]]
    rtol: float
    atol: float

    @property
    def operators(self) -> set[str]:
        """The operators that the model uses."""
        return {node.op_type for node in self.model.graph.node}

    @property
    def elements(self) -> set[int]:
        """The element types of its inputs and outputs, as ONNX's enumeration; -1 for a value that is not a tensor."""
        values = (*self.model.graph.input, *self.model.graph.output)
        return {value.type.tensor_type.elem_type or -1 for value in values}

    @property
    def tier(self) -> str | None:
        """The first tier that contains its operators and element types, or None."""
        if "_expanded" in self.name or "train" in self.name:
            return None
        for name, operators in TIERS.items():
            elements = _QUANTIZED_ELEMENTS if operators is QUANTIZED else _FLOAT_ELEMENTS
            if self.operators <= operators and self.elements <= elements:
                return name
        return None

    @property
    def is_inference(self) -> bool:
        """Whether it is a node test of float32, int64 and bool, without training, control flow and random numbers."""
        names = self.operators
        plain = not (names & _NOT_INFERENCE or any(word in name for name in names for word in _NOT_TENSORS))
        trains = "train" in self.name or any("train" in node.domain for node in self.model.graph.node)
        return self.suite == "node" and plain and not trains and self.elements <= _INFERENCE_ELEMENTS

    def run(self, **kwargs: Any) -> None:
        """Run the test.

        Args:
            kwargs: Arguments of `MlhoodBackend.prepare`.

        Raises:
            MlhoodError: The compiler rejects the model.
            AssertionError: An output differs from the expected one.
        """
        prepared = MlhoodBackend.prepare(self.model, **kwargs)
        for inputs, expected in self.data:
            Runner.assert_similar_outputs(expected, list(prepared.run(inputs)), self.rtol, self.atol)


@cache
def cases() -> tuple[Case, ...]:
    """Return all tests that are included in the onnx package, in its order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite computes overflows and divisions by zero
        from onnx.backend.test.loader import load_model_tests

        kinds = ("node", "simple", "pytorch-converted", "pytorch-operator")
        return tuple(_case(kind, test) for kind in kinds for test in load_model_tests(kind=kind))


def _case(suite: str, test: Any) -> Case:
    if test.model is not None:
        data = [(_to_arrays(inputs), _to_arrays(outputs)) for inputs, outputs in test.data_sets]
        return Case(test.name, suite, test.model, data, test.rtol, test.atol)
    folder = Path(test.model_dir)
    model = onnx.load(folder / "model.onnx")
    data_sets = sorted(folder.glob("test_data_set_*"))
    data = [(_read(path, "input"), _read(path, "output")) for path in data_sets]
    return Case(test.name, suite, model, data, test.rtol, test.atol)


def _to_arrays(values: Iterable[Any]) -> list[Any]:
    return [numpy_helper.to_array(value) if isinstance(value, TensorProto) else value for value in values]


def _read(folder: Path, prefix: str) -> list[Any]:
    count = len(list(folder.glob(f"{prefix}_*.pb")))
    return [_tensor((folder / f"{prefix}_{i}.pb").read_bytes()) for i in range(count)]


def _tensor(data: bytes) -> Any:
    try:
        return numpy_helper.to_array(TensorProto.FromString(data))
    except Exception:  # a sequence or an optional, which the compiler does not support
        return None


def conformance(**kwargs: Any) -> pd.DataFrame:
    """Run the suite and return its score.

    Args:
        kwargs: Arguments of `MlhoodBackend.prepare`.

    Returns:
        A row for each tier, cumulative from the first to the fourth, for the node tests that are `is_inference`, for
        all node tests and for all tests, with the columns `passed`, `tests` and `share`.
    """
    scores = [(case, passes(case, **kwargs)) for case in cases()]
    rows = {name: [ok for case, ok in scores if _is_in_row(case.tier, name)] for name in TIERS}
    rows["6 nodes of float32, int64 and bool"] = [ok for case, ok in scores if case.is_inference]
    rows["all node tests"] = [ok for case, ok in scores if case.suite == "node"]
    rows["all tests"] = [ok for _, ok in scores]
    table = {name: {"passed": sum(oks), "tests": len(oks)} for name, oks in rows.items()}
    frame = pd.DataFrame.from_dict(table, orient="index").rename_axis("tier")
    return frame.assign(share=frame["passed"] / frame["tests"])


def passes(case: Case, **kwargs: Any) -> bool:
    """Return whether the compiler passes a test."""
    try:
        case.run(**kwargs)
    except (MlhoodError, AssertionError):
        return False
    return True


def _is_in_row(tier: str | None, row: str) -> bool:
    """Return whether a test of a tier counts in a row; tiers one to four are cumulative."""
    if tier is None or list(TIERS).index(row) == len(TIERS) - 1:
        return tier == row
    return list(TIERS).index(tier) <= list(TIERS).index(row)


def tier_cases() -> list[Case]:
    """Return the tests that are in a tier and not excluded."""
    return [case for case in cases() if case.tier is not None and case.name not in EXCLUDES]


def unexpected_failures(**kwargs: Any) -> list[str]:
    """Return the names of the tests in `tier_cases` that fail."""
    return [case.name for case in tier_cases() if not passes(case, **kwargs)]
