"""Options of the quantisation of a graph."""

from __future__ import annotations

from dataclasses import dataclass

from mlhood.compiler.quantize.calibrate import check_calibration
from mlhood.compiler.quantize.schema import check_element, check_schema
from mlhood.errors import CompilerError


@dataclass(frozen=True)
class Recipe:
    """Options of the quantisation.

    Args:
        schema: How a range is mapped to a scale and an offset; one of `SCHEMAS`.
        element: Element type of activations: "int8", "int16" or "uint8". Weights have the same, except int8 with uint8
            activations.
        per_channel: Give each output channel of a weight its own scale. The weight's offset is then 0, as ONNX
            Runtime and most hardware require: an asymmetric schema applies to activations only.
        calibration: How a distribution is reduced to a range; one of `CALIBRATIONS`.
        percentile: Percentage of the elements in range, for the calibration "percentile".
        headroom: Fraction by which the range of activations is widened, for data that exceed the calibration data.
            By default 0 for 8 bits and 0.5 for 16 bits, which have steps to spare and whose error would mostly be due
            to saturation.

    Raises:
        CompilerError: An option is invalid.
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
            raise CompilerError("invalid headroom", expected="0 to 100", got=self.headroom)

    @property
    def margin(self) -> float:
        """The factor by which the range of activations is widened."""
        if self.headroom is not None:
            return 1 + self.headroom
        return 1.5 if self.element == "int16" else 1.0

    @property
    def weight_element(self) -> str:
        """Element type of weights."""
        return "int8" if self.element == "uint8" else self.element

    @property
    def weight_schema(self) -> str:
        """Schema of weights."""
        if self.schema == "power_of_two":
            return self.schema
        return "symmetric" if self.per_channel or self.element == "uint8" else self.schema
