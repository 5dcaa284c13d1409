"""Records SCALE-Sim's reports as golden files; run by hand where SCALE-Sim is installed, never by the tests.

    pip install --target DIR scalesim==3.0.0 numpy==2.2.6
    PYTHONPATH=DIR python tests/dataflow/systolic/record.py

This SCALE-Sim fails with NumPy 2.4.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).with_name("golden")
REPORTS = ("COMPUTE", "DETAILED_ACCESS")
KEYS = ("ArrayHeight", "ArrayWidth", "IfmapSramSzkB", "FilterSramSzkB", "OfmapSramSzkB", "Dataflow")
CONFIG = """[general]
run_name = run

[architecture_presets]
{presets}
IfmapOffset: 0
FilterOffset: 10000000
OfmapOffset: 20000000
Bandwidth: 10
ReadRequestBuffer: 32
WriteRequestBuffer: 32

[layout]
IfmapCustomLayout: False
IfmapSRAMBankBandwidth: 10
IfmapSRAMBankNum: 10
IfmapSRAMBankPort: 2
FilterCustomLayout: False
FilterSRAMBankBandwidth: 10
FilterSRAMBankNum: 10
FilterSRAMBankPort: 2

[sparsity]
SparsitySupport: false

[run_presets]
InterfaceBandwidth: CALC
UseRamulatorTrace: False
"""
CONVOLUTIONS = "Layer name, IFMAP Height, IFMAP Width, Filter Height, Filter Width, Channels, Num Filter, Strides,\n"
PRODUCTS = "Layer, M, N, K,\n"
ALEXNET_PART = "Conv1,  224, 224,    11, 11,    3,      96,     4,\n"  # of SCALE-Sim's own test
MIXED = "DPfirst, 9, 11, 3, 3, 3, 1, 2,\n\nsecond, 5, 6, 5, 2, 4, 33, 1,\nthird, 14, 14, 3, 3, 16, 24, 3,\n"
C3, C4 = "C3, 16, 16, 3, 3, 256, 256, 1,\n", "C4, 9, 9, 3, 3, 512, 512, 1,\n"


def cases() -> list[dict[str, Any]]:
    """Return arrays and topologies: fixed ones, then small random ones whose memories are refilled often."""
    drawn = []
    for dataflow in ("ws", "is", "os"):
        drawn.append(case((32, 32, 64, 64, 64, dataflow), CONVOLUTIONS + ALEXNET_PART))
        drawn.append(case((32, 32, 64, 64, 64, dataflow), PRODUCTS + "product, 256, 128, 256,\n"))
        drawn.append(case((12, 14, 2, 1, 1, dataflow), CONVOLUTIONS + MIXED))
        drawn.append(case((64, 64, 64, 64, 64, dataflow), CONVOLUTIONS + C3 + C4))
    source = random.Random(7)
    while len(drawn) < 60:
        sizes = [source.choice((1, 2, 3, 5, 8, 16)) for _ in range(2)] + [source.choice((1, 1, 2, 4)) for _ in range(3)]
        dataflow = source.choice(("ws", "is", "os"))
        drawn.append(case((*sizes, dataflow), product(source) if source.random() < 0.4 else convolution(source)))
    return drawn


def case(presets: tuple[Any, ...], topology: str) -> dict[str, Any]:
    return {"presets": dict(zip(KEYS, presets, strict=True)), "topology": topology}


def product(source: random.Random) -> str:
    m, n, k = (source.randint(1, 90) for _ in range(3))
    return f"{PRODUCTS}random, {m}, {n}, {k},\n"


def convolution(source: random.Random) -> str:
    kernel = [source.choice((1, 2, 3, 5)) for _ in range(2)]
    image = [size + source.randint(0, 12) for size in kernel]
    others = [source.choice((1, 2, 3, 8, 13)), source.choice((1, 4, 9, 24)), source.choice((1, 1, 2, 3, 4))]
    return f"{CONVOLUTIONS}random, {', '.join(map(str, [*image, *kernel, *others]))},\n"


def run(recorded: dict[str, Any], folder: Path) -> dict[str, str]:
    """Return the text of SCALE-Sim's reports."""
    from scalesim.scale_sim import scalesim

    presets = "\n".join(f"{key}: {value}" for key, value in recorded["presets"].items())
    for name, text in (
        ("c.cfg", CONFIG.format(presets=presets)),
        ("t.csv", recorded["topology"]),
        ("l.csv", "none,\n"),
    ):
        (folder / name).write_text(text)
    with contextlib.redirect_stdout(io.StringIO()):
        simulator = scalesim(
            save_disk_space=True,
            verbose=False,
            config=str(folder / "c.cfg"),
            topology=str(folder / "t.csv"),
            layout=str(folder / "l.csv"),
            input_type_gemm=recorded["topology"].startswith(PRODUCTS),
        )
        simulator.run_scale(top_path=str(folder / "out"))
    return {name: (folder / "out" / "run" / f"{name}_REPORT.csv").read_text() for name in REPORTS}


def main() -> None:
    results = []
    for drawn in cases():
        with tempfile.TemporaryDirectory() as folder:
            results.append(drawn | {"reports": run(drawn, Path(folder))})
        print(len(results), drawn["presets"], file=sys.stderr)
    origin = f"SCALE-Sim {version('scalesim')}, NumPy {version('numpy')}, Python {sys.version.split()[0]}: record.py"
    path = GOLDEN / "scalesim.json"
    path.write_text(json.dumps({"made": origin, "cases": results}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
