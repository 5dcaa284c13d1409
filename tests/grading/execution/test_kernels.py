"""The kernels of one notebook."""

from __future__ import annotations

from nbformat.v4 import new_code_cell

from mlhood.grading.bare.libraries import Libraries
from mlhood.grading.checks.task import Task
from mlhood.grading.execution.kernels import MAX_COPIED_BYTES, NotebookKernels

SIZES = {"a.onnx": 3, "b.onnx": MAX_COPIED_BYTES, "c.onnx": MAX_COPIED_BYTES + 1}
FILES = Libraries(files=tuple(SIZES))


def test_a_bare_kernel_gets_the_small_files_that_its_libraries_name(tmp_path):
    sizes = "from pathlib import Path\nprint({p.name: p.stat().st_size for p in sorted(Path().iterdir())})"
    with NotebookKernels([Task("T9.1", "", (), libraries=FILES)], tmp_path) as kernels:
        for name, size in {**SIZES, "other.onnx": 3}.items():
            (kernels.notebook.folder / name).write_bytes(bytes(size))
        kernels.run(new_code_cell("pass"), 30)
        cell = new_code_cell(sizes)
        kernels.bare[FILES].run(cell, 30)
    assert cell.outputs[0].text.strip() == str({name: SIZES[name] for name in ("a.onnx", "b.onnx")})
