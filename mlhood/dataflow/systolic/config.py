"""SCALE-Sim's configuration files: an INI file with the array, its memories and its dataflow.

Read are `[general] run_name` and, of `[architecture_presets]`, the keys below, case-insensitively. The rest is ignored:
offsets, banks and layouts change no count here, and memories always have the bandwidth of `InterfaceBandwidth: CALC`
(`has_user_bandwidth` returns whether the file sets another one).
"""

from __future__ import annotations

import configparser
from collections.abc import Iterable, Mapping
from pathlib import Path

from mlhood.dataflow.systolic.array import Array
from mlhood.errors import DataflowError

# field of the array -> its keys, the first as in SCALE-Sim 2 and 3, the second as in 1
KEYS = {
    "rows": ("ArrayHeight",),
    "columns": ("ArrayWidth",),
    "ifmap_kib": ("IfmapSramSzkB", "IfmapSramSz"),
    "filter_kib": ("FilterSramSzkB", "FilterSramSz"),
    "ofmap_kib": ("OfmapSramSzkB", "OfmapSramSz"),
}
_PRESETS = "architecture_presets"


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
            expected=f"[{_PRESETS}] with {', '.join(keys[0] for keys in KEYS.values())} and Dataflow",
            got=f"sections: {', '.join(parser.sections()) or 'none'}",
            todo="pass SCALE-Sim's .cfg as the configuration, and its .csv as the topology",
        )
    if parser.get("sparsity", "SparsitySupport", fallback="false").strip().lower() == "true":
        where = f"{path}, [sparsity] SparsitySupport"
        raise DataflowError("sparse weights are not modelled", where=where, expected="false", got="true")
    presets = parser[_PRESETS]
    sizes = {field: _integer(presets, keys, path) for field, keys in KEYS.items()}
    dataflow = _value(presets, ("Dataflow",), path).lower()
    name = parser.get("general", "run_name", fallback=path.stem).strip().strip('"')
    return Array(dataflow=dataflow, name=name or path.stem, **sizes)


def has_user_bandwidth(path: str | Path) -> bool:
    """Return whether a configuration sets its own bandwidth, for which SCALE-Sim may stall the array.

    Raises:
        DataflowError: The file cannot be read, or is not an INI file.
    """
    return _parse(Path(path)).get("run_presets", "InterfaceBandwidth", fallback="CALC").strip().upper() == "USER"


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
        raise DataflowError("the file cannot be read", where=path, got=error.strerror or str(error)) from error


def _parse(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(read_text(path), source=str(path))
    except configparser.Error as error:
        expected = "sections in brackets, and lines of `key = value` or `key : value`"
        raise DataflowError("not a configuration file", where=path, expected=expected, got=error.message) from error
    return parser


def _integer(presets: Mapping[str, str], keys: tuple[str, ...], path: Path) -> int:
    text = _value(presets, keys, path)
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        where = f"{path}, [{_PRESETS}]"
        raise DataflowError(f"invalid {keys[0]}", where=where, expected="a positive integer", got=text)
    return value


def _value(presets: Mapping[str, str], keys: Iterable[str], path: Path) -> str:
    for key in keys:
        if key in presets:
            return presets[key].strip()
    got = ", ".join(presets) or "an empty section"
    raise DataflowError(f"{next(iter(keys))} is missing", where=f"{path}, [{_PRESETS}]", got=got)
