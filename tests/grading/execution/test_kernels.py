"""The kernels of one notebook."""

from __future__ import annotations

import pytest
from nbformat.v4 import new_code_cell

from mlhood.grading.bare.libraries import Libraries
from mlhood.grading.checks.task import Task
from mlhood.grading.execution.kernels import MAX_COPIED_BYTES, NotebookKernels

FILES = Libraries(files=("model.onnx",))


@pytest.mark.parametrize("size", [3, MAX_COPIED_BYTES, MAX_COPIED_BYTES + 1])
def test_a_bare_kernel_gets_the_small_files_that_its_libraries_name(tmp_path, size):
    sizes = "from pathlib import Path\nprint([(p.name, p.stat().st_size) for p in Path().iterdir()])"
    with NotebookKernels([Task("T9.1", "", (), libraries=FILES)], tmp_path) as kernels:
        for name in (*FILES.files, "other.onnx"):
            (kernels.notebook.folder / name).write_bytes(bytes(size))
        kernels.run(new_code_cell("pass"), 30)
        cell = new_code_cell(sizes)
        kernels.bare[FILES].run(cell, 30)
    want = [("model.onnx", size)] if size <= MAX_COPIED_BYTES else []
    assert cell.outputs[0].text.strip() == str(want)
