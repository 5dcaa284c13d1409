"""How a graph is to be quantised."""

from __future__ import annotations

from dataclasses import dataclass

from mlhood.compiler.quantize.calibrate import check_calibration
from mlhood.compiler.quantize.schema import check_element, check_schema
from mlhood.errors import CompilerError


@dataclass(frozen=True)
class Recipe:
    """What to decide before quantising.

    Args:
        schema: How a range becomes a scale and an offset; one of `SCHEMAS`.
        element: The integers of activations: "int8", "int16" or "uint8". Weights have the same, but int8 beside
            activations in uint8.
        per_channel: Whether each output channel of a weight has its own scale. The weight's offset is then 0, as ONNX
            Runtime and most hardware need: an asymmetric schema holds for activations only.
        calibration: How a distribution becomes a range; one of `CALIBRATIONS`.
        percentile: Share of the elements that stay in range, for the calibration "percentile".
        headroom: By which share of itself the range of activations is widened, for data that go beyond those of the
            calibration; if left out, 0 for 8 bits. 16 bits have steps to spare, and what is cut off would be most of
            their error: there it is 0.5.

    Raises:
        CompilerError: One of these is unknown.
    """

    schema: str = "asymmetric"
    element: str = "int8"
    per_channel: bool = False
    calibration: str = "none"
    percentile: float = 99.99
    headroom: float | None = None

    def __post_init__(self) -> None:
        check_schema(self.schema)
        check_element(self.element)
        check_calibration(self.calibration, self.percentile)
        if self.headroom is not None and not 0 <= self.headroom <= 100:
            raise CompilerError("this is no headroom", expected="0 to 100", got=self.headroom)

    @property
    def margin(self) -> float:
        """By which factor the range of activations is widened."""
        if self.headroom is not None:
            return 1 + self.headroom
        return 1.5 if self.element == "int16" else 1.0

    @property
    def weight_element(self) -> str:
        """The integers of weights."""
        return "int8" if self.element == "uint8" else self.element

    @property
    def weight_schema(self) -> str:
        """The schema of weights."""
        if self.schema == "power_of_two":
            return self.schema
        return "symmetric" if self.per_channel or self.element == "uint8" else self.schema
