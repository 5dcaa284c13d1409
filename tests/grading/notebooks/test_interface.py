"""What notebooks import from the package is found, however they do it, and the page of it is current."""

from __future__ import annotations

from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from mlhood.errors import NotebookError
from mlhood.grading.notebooks.interface import (
    INTERFACE_PAGE,
    PublicName,
    by_module,
    imported_names,
    interface_page,
    public_interface,
)
from mlhood.grading.notebooks.notebook import course_notebooks

ROOT = Path(__file__).parents[3]


@pytest.fixture
def package(tmp_path) -> Path:
    for name, text in {
        "__init__": "def check(): ...\n",
        "kernels/__init__": "from mlhood.kernels.gemm import gemm\nfrom mlhood.kernels import peers\n",
        "kernels/gemm": "def gemm(): ...\nN = 1\n",
        "kernels/peers": "def torch(): ...\n",
    }.items():
        path = tmp_path / f"mlhood/{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def names(root: Path, *cells: str) -> set[str]:
    notebook = new_notebook(cells=[new_markdown_cell("import mlhood.not_code"), *map(new_code_cell, cells)])
    return {name.full for name in imported_names(notebook, root)}


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        (["from mlhood.kernels.peers import torch"], {"mlhood.kernels.peers.torch"}),
        (["from mlhood.kernels.peers import torch as t\nt.x"], {"mlhood.kernels.peers.torch"}),
        (["from mlhood.kernels import peers", "peers.torch()"], {"mlhood.kernels.peers.torch"}),
        (["import mlhood.kernels.peers as p\n%matplotlib inline\np.torch()"], {"mlhood.kernels.peers.torch"}),
        (["import mlhood", "mlhood.check('P1.1')"], {"mlhood.check"}),
        (["import mlhood.kernels.peers", "mlhood.kernels.peers.torch()"], {"mlhood.kernels.peers.torch"}),
        # a function of the package, which has the name of the module that it is written in
        (["from mlhood.kernels import gemm\ngemm()"], {"mlhood.kernels.gemm"}),
        (["def f():\n    from mlhood.kernels.gemm import N"], {"mlhood.kernels.gemm.N"}),
        (["!pip list\nimport numpy as np\nnp.zeros(1)"], set()),
        (["from mlhood.kernels import peers", "from numpy import linalg as x\nx.torch"], set()),
    ],
)
def test_what_is_imported_is_found(cells, found, package):
    assert names(package, *cells) == found


def test_code_that_is_not_python_is_named(package):
    notebook = new_notebook(cells=[new_code_cell("x = (", id="broken")])
    with pytest.raises(NotebookError, match="broken"):
        imported_names(notebook, package)


def test_the_page_has_a_row_for_each_module():
    interface = {PublicName("mlhood.a", "f"): ("P1", "P2"), PublicName("mlhood.a", "g"): ("P3",)}
    assert interface_page(interface).endswith("|---|---|---|\n| `mlhood.a` | `f`, `g` | P1, P2, P3 |\n")


def test_the_page_of_this_course_lists_what_its_notebooks_import():
    interface = public_interface(course_notebooks(ROOT), ROOT)
    assert (ROOT / INTERFACE_PAGE).read_text(encoding="utf-8") == interface_page(interface), "run `mlhood sync`"
    assert {"mlhood", "mlhood.exchange"} <= by_module(interface).keys()
