"""SCALE-Sim's input files: the configuration of an array, and the topology of a network.

A configuration is an INI file of SCALE-Sim 2 or 3. Read are `[general] run_name` and, of `[architecture_presets]`, the
keys below, case-insensitively. The rest is ignored: offsets, banks and layouts change no count here, and memories
always have the bandwidth of `InterfaceBandwidth: CALC`.

A topology is a CSV file with a header and a row per layer. A convolution has name, image height and width, window
height and width, channels, filters and stride; SCALE-Sim 2 adds a horizontal stride, SCALE-Sim 3 a ratio N:M of nonzero
weights. A matrix product has name, M, N, K and, again, the ratio. Rows end with a comma, which is optional here. The
ratio is ignored: SCALE-Sim uses it only if the configuration asks for sparsity, which is not modelled.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from mlhood.dataflow.systolic.array import Array, ArrayLayer, gemm_layer
from mlhood.errors import DataflowError
from mlhood.files.paths import did_you_mean

# field of the array -> its key
KEYS = {
    "rows": "ArrayHeight",
    "columns": "ArrayWidth",
    "ifmap_kib": "IfmapSramSzkB",
    "filter_kib": "FilterSramSzkB",
    "ofmap_kib": "OfmapSramSzkB",
}
_PRESETS = "architecture_presets"
CONVOLUTION = ("IFMAP height", "IFMAP width", "filter height", "filter width", "channels", "filters", "stride")
PRODUCT = ("M", "N", "K")
_RATIO = re.compile(r"\d+\s*:\s*\d+")
_MAX_DIGITS = 18  # of a size; Python refuses to parse thousands of them


def read_config(path: str | Path) -> Array:
    """Return the array of a SCALE-Sim configuration.

    Raises:
        DataflowError: The file cannot be read, is not an INI file, or a value is missing or invalid; or it asks for
            sparsity, which is not modelled.
    """
    path = Path(path)
    parser = _parse(path)
    if not parser.has_section(_PRESETS):
        raise DataflowError(
            f"the section [{_PRESETS}] is missing",
            where=path,
            expected=f"[{_PRESETS}] with {', '.join(KEYS.values())} and Dataflow",
            got=f"sections: {', '.join(parser.sections()) or 'none'}",
            todo="pass SCALE-Sim's .cfg as the configuration, and its .csv as the topology",
        )
    if parser.get("sparsity", "SparsitySupport", fallback="false").strip().lower() == "true":
        where = f"{path}, [sparsity] SparsitySupport"
        raise DataflowError("sparse weights are not modelled", where=where, expected="false", got="true")
    presets = parser[_PRESETS]
    sizes = {field: _integer(presets, key, path) for field, key in KEYS.items()}
    dataflow = _value(presets, "Dataflow", path).lower()
    name = parser.get("general", "run_name", fallback=path.stem).strip().strip('"')
    return Array(dataflow=dataflow, name=name or path.stem, **sizes)


def read_text(path: Path) -> str:
    """Return a file's text.

    Raises:
        DataflowError: It is missing, a folder, not readable, or not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataflowError("not a text file", where=path, expected="UTF-8", got=error.reason) from error
    except OSError as error:
        got, todo = error.strerror or str(error), did_you_mean(path)
        raise DataflowError("the file cannot be read", where=path, got=got, todo=todo) from error


def _parse(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(read_text(path), source=str(path))
    except configparser.Error as error:
        expected = "sections in brackets, and lines of `key = value` or `key : value`"
        raise DataflowError("not a configuration file", where=path, expected=expected, got=error.message) from error
    return parser


def _integer(presets: Mapping[str, str], key: str, path: Path) -> int:
    text = _value(presets, key, path)
    if not text.isdecimal() or int(text) < 1:
        where = f"{path}, [{_PRESETS}]"
        raise DataflowError(f"invalid {key}", where=where, expected="a positive integer", got=text)
    return int(text)


def _value(presets: Mapping[str, str], key: str, path: Path) -> str:
    if key not in presets:
        got = ", ".join(presets) or "an empty section"
        raise DataflowError(f"{key} is missing", where=f"{path}, [{_PRESETS}]", got=got)
    return presets[key].strip()


def read_topology(path: str | Path) -> list[ArrayLayer]:
    """Return the layers of a SCALE-Sim topology; the number of values distinguishes convolutions from matrix products.

    As in SCALE-Sim, a name with "DP" in it is a depthwise convolution: one layer per channel.

    Raises:
        DataflowError: The file cannot be read, has no header or no layers, or a row is invalid.
    """
    path = Path(path)
    lines = [(number, line.strip()) for number, line in enumerate(read_text(path).splitlines(), 1)]
    if lines and _is_layer(lines[0][1]):
        raise DataflowError(
            "the header is missing",
            where=f"{path}, line 1",
            expected="a line with the columns' names, which is skipped",
            got=lines[0][1],
            todo="add a header: otherwise this layer would be skipped",
        )
    rows = [(number, line) for number, line in lines[1:] if line.strip(", \t")]
    if not rows:
        expected = "a header, then a row per layer"
        raise DataflowError("the topology has no layers", where=path, expected=expected, got=f"{len(lines)} lines")
    return [layer for number, line in rows for layer in _layers(line, f"{path}, line {number}")]


def _is_layer(line: str) -> bool:
    """Return whether a line has the values of a layer, so that it cannot be the header."""
    _, *values = [value.strip() for value in line.removesuffix(",").split(",")]
    return len(values) >= len(PRODUCT) and all(value.isdecimal() or _RATIO.fullmatch(value) for value in values)


def _layers(line: str, where: str) -> list[ArrayLayer]:
    name, *values = [value.strip() for value in line.removesuffix(",").split(",")]
    if values and _RATIO.fullmatch(values[-1]):
        values.pop()
    if len(values) not in (len(PRODUCT), len(CONVOLUTION), len(CONVOLUTION) + 1):
        expected = f"a name and {', '.join(CONVOLUTION)}; or a name and {', '.join(PRODUCT)}; separated by commas"
        raise DataflowError("invalid row of a layer", where=where, expected=expected, got=line)
    sizes = [_size(value, where) for value in values]
    try:
        if len(sizes) == len(PRODUCT):
            return [gemm_layer(name, *sizes)]
        return _convolutions(name, sizes)
    except DataflowError as error:
        error.parts["where"] = f"{where} ({name})"
        raise


def _convolutions(name: str, sizes: list[int]) -> list[ArrayLayer]:
    *first, stride = sizes[: len(CONVOLUTION)]
    layer = ArrayLayer(name, *first, stride_height=stride, stride_width=sizes[-1])
    if "DP" not in name:
        return [layer]
    channels = range(layer.channels)
    return [replace(layer, name=f"{name}Channel_{channel}", channels=1) for channel in channels]


def _size(text: str, where: str) -> int:
    if not text.isdecimal() or len(text) > _MAX_DIGITS or int(text) < 1:
        raise DataflowError("invalid size", where=where, expected="a positive integer", got=repr(text))
    return int(text)
