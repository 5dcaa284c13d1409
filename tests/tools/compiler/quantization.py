"""What quantisation to 8 bits costs: our integers beside ONNX Runtime's, on architectures of the zoo.

Both get the same file and the same calibration data; ranges are from minimum to maximum, weights have a scale for each
output channel. ONNX Runtime's static quantisation writes QDQ, after the preparation that its documentation recommends.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from mlhood.compiler.bench.model import quantize_with_onnx_runtime
from mlhood.compiler.compile import Executable
from mlhood.compiler.compile import compile as compile_model
from mlhood.compiler.quantize import Recipe, sqnr
from mlhood.errors import CompilerError, MlhoodError, nearest
from mlhood.exchange import silence
from mlhood.measure import session_options
from tests.tools.compiler.zoo import EXPORTERS, export_architecture

if TYPE_CHECKING:
    from tests.tools.compiler.architectures import Architecture

EXPORTER = "torchscript-17"
RECIPE = Recipe(per_channel=True)
TOLERANCE = 1.0  # dB
LOSSLESS = 100.0  # dB: what floats lose by rounding
# Of calibration, and of the comparison; the data of the two differ.
_BATCHES, _BATCH = 8, 8

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Row:
    """One architecture, quantised twice.

    Args:
        name: The architecture's.
        ours: SQNR in dB of the output with the least, over all data; NaN if the model is refused.
        theirs: The same of ONNX Runtime's model.
        note: Why a model is refused.
    """

    name: str
    ours: float = math.nan
    theirs: float = math.nan
    note: str = ""

    @property
    def is_good(self) -> bool:
        """Whether ours is at most `TOLERANCE` below ONNX Runtime's, or the only one."""
        return not math.isnan(self.ours) and not self.ours < min(self.theirs, LOSSLESS) - TOLERANCE

    def __str__(self) -> str:
        cells = ["     -" if math.isnan(value) else f"{value:6.1f}" for value in (self.ours, self.theirs)]
        return f"{self.name:24}{cells[0]} dB {cells[1]} dB{'' if self.is_good else '  *'} {self.note}".rstrip()


def measure(names: Sequence[str] = (), exporter: str = EXPORTER) -> Iterator[Row]:
    """Quantise architectures with our default schema and with ONNX Runtime, one after another.

    Args:
        names: Of the zoo's architectures; all if empty.
        exporter: Key of `zoo.EXPORTERS`.

    Raises:
        ModelError: An architecture is unknown.
        CompilerError: The exporter is unknown.
    """
    from tests.tools.compiler.architectures import ARCHITECTURES, architecture

    if exporter not in EXPORTERS:
        raise CompilerError(
            "unknown exporter", expected=", ".join(EXPORTERS), got=exporter, todo=nearest(exporter, EXPORTERS)
        )
    for entry in [architecture(name) for name in names or ARCHITECTURES]:
        yield _measure(entry, exporter)


def summary(rows: Sequence[Row]) -> str:
    """Return the share of the architectures on which we are within the tolerance, among those that were exported."""
    quantised = [row for row in rows if not (math.isnan(row.ours) and row.note.startswith("not exported"))]
    good = sum(row.is_good for row in quantised)
    return f"{good} of {len(quantised)} within {TOLERANCE:g} dB of ONNX Runtime's static quantisation, or better"


def _measure(entry: Architecture, exporter: str) -> Row:
    try:
        proto, batch = _export(entry, exporter)
    except Exception as error:  # torch raises errors of many kinds for what it cannot export
        return Row(entry.name, note=f"not exported: {_line(error)}")
    count = _BATCHES * _BATCH // batch
    calibration, data = ([_inputs(entry, proto, batch, i + seed) for i in range(count)] for seed in (0, 1000))
    expected = _onnx_runtime(proto.SerializeToString(), data)
    notes, values = [], []
    for name, quantised in (("ours", _ours), ("ONNX Runtime's", _theirs)):
        try:
            values.append(_least(expected, quantised(proto, calibration, data)))
        except MlhoodError as error:
            notes.append(f"{name}: {error.one_line()}")
            values.append(math.nan)
        except Exception as error:  # ONNX Runtime's quantiser fails in many ways on masks of infinities
            notes.append(f"{name}: {type(error).__name__} {_line(error)}")
            values.append(math.nan)
    ours, theirs = values
    return Row(entry.name, ours, theirs, "; ".join(notes))


def _export(entry: Architecture, exporter: str) -> tuple[onnx.ModelProto, int]:
    """Return the model and the batch to run it with: open if it can be exported and run so, else 1."""
    try:
        proto = export_architecture(entry, EXPORTERS[exporter], True)
        _onnx_runtime(proto.SerializeToString(), [_inputs(entry, proto, _BATCH, 0)])
        compile_model(proto, "interpreter")
    except Exception:  # of torch, ONNX Runtime or ours: some networks only take the batch that they were traced with
        return export_architecture(entry, EXPORTERS[exporter], False), 1
    return proto, _BATCH


def _inputs(entry: Architecture, proto: onnx.ModelProto, batch: int, seed: int) -> Arrays:
    declared = {value.name for value in proto.graph.input}
    pairs = zip(entry.inputs, entry.samples(batch, seed), strict=True)
    return {spec.name: sample.numpy() for spec, sample in pairs if spec.name in declared}


def _ours(proto: onnx.ModelProto, calibration: list[Arrays], data: list[Arrays]) -> list[np.ndarray]:
    compiled = compile_model(proto, "interpreter", RECIPE, calibration=calibration)
    if not isinstance(compiled, Executable):
        raise CompilerError("the model was not compiled to the end", got=type(compiled).__name__)
    return _joined([list(compiled.run(**inputs).values()) for inputs in data])


def _theirs(proto: onnx.ModelProto, calibration: list[Arrays], data: list[Arrays]) -> list[np.ndarray]:
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with tempfile.TemporaryDirectory() as folder, silence():
        source, prepared, target = (Path(folder) / f"{name}.onnx" for name in ("float", "prepared", "quantised"))
        onnx.save(proto, source)
        try:
            quant_pre_process(source, prepared, skip_symbolic_shape=True)
        except Exception:  # it is only recommended
            shutil.copy(source, prepared)
        quantize_with_onnx_runtime(prepared, target, calibration)
        return _onnx_runtime(target.read_bytes(), data)


def _onnx_runtime(model: bytes, data: list[Arrays]) -> list[np.ndarray]:
    import onnxruntime

    options = session_options(1)
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return _joined([session.run(None, inputs) for inputs in data])


def _joined(runs: list[Any]) -> list[np.ndarray]:
    """Return each output of all runs as one array."""
    return [np.concatenate([np.ravel(part) for part in parts]) for parts in zip(*runs, strict=True)]


def _least(expected: list[np.ndarray], actual: list[np.ndarray]) -> float:
    pairs = zip(expected, actual, strict=True)
    return min((sqnr(e, a) for e, a in pairs if e.dtype.kind == "f"), default=math.nan)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:120]
