"""ONNX Runtime's quantiser, as the reference."""

import logging
from pathlib import Path

import numpy as np
import onnx
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_static,
)

from mlhood.exchange import run

TYPES = {"int8": QuantType.QInt8, "uint8": QuantType.QUInt8, "int16": QuantType.QInt16}


class Reader(CalibrationDataReader):
    def __init__(self, name, images, size=32):
        self.batches = iter([{name: images[i : i + size]} for i in range(0, len(images), size)])

    def get_next(self):
        return next(self.batches, None)


def quantized_by_onnxruntime(model, images, folder, *, element="int8", per_channel=False, symmetric=False):
    """Quantise the model with ONNX Runtime: QDQ format, ranges from minimum to maximum."""
    source, target = Path(folder) / "float.onnx", Path(folder) / "quantized.onnx"
    onnx.save(model, source)
    logging.disable(logging.WARNING)
    try:
        quantize_static(
            source,
            target,
            Reader(model.graph.input[0].name, images),
            quant_format=QuantFormat.QDQ,
            per_channel=per_channel,
            activation_type=TYPES[element],
            weight_type=TYPES["int8" if element == "uint8" else element],
            calibrate_method=CalibrationMethod.MinMax,
            extra_options={"ActivationSymmetric": symmetric, "WeightSymmetric": True},
        )
    finally:
        logging.disable(logging.NOTSET)
    return onnx.load(target)


def logits_of(model, images, size=64):
    name = model.graph.output[0].name
    parts = [run(model, images[i : i + size], threads=1)[name] for i in range(0, len(images), size)]
    return np.concatenate(parts)
