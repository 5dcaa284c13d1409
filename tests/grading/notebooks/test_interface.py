"""The page of the public interface lists what the notebooks' code imports from the package."""

from __future__ import annotations

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from mlhood.grading.notebooks.interface import imported_names, interface_page
from mlhood.grading.notebooks.notebook import write


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        (["from mlhood.errors import nearest"], {"mlhood.errors.nearest"}),
        (["from mlhood.errors import nearest as t\nt.x"], {"mlhood.errors.nearest"}),
        (["from mlhood import errors", "errors.nearest()"], {"mlhood.errors.nearest"}),
        (["import mlhood.files.paths as p\n%matplotlib inline\np.read_text()"], {"mlhood.files.paths.read_text"}),
        (["import mlhood", "mlhood.check('P1.1')"], {"mlhood.check"}),
        (["import mlhood.files.paths", "mlhood.files.paths.read_text('x').strip()"], {"mlhood.files.paths.read_text"}),
        (["def f():\n    from mlhood.files.csv_cells import FORMULA"], {"mlhood.files.csv_cells.FORMULA"}),
        (["!pip list\nimport numpy as np\nnp.zeros(1)"], set()),
    ],
)
def test_what_is_imported_is_found(cells, found):
    notebook = new_notebook(cells=[new_markdown_cell("import mlhood.not_code"), *map(new_code_cell, cells)])
    assert {f"{module}.{name}" for module, name in imported_names(notebook)} == found


def test_the_page_has_a_row_for_each_module(tmp_path):
    for name, code in {"P1": "import mlhood\nmlhood.check('P1.1')", "P2": "from mlhood import progress"}.items():
        write(new_notebook(cells=[new_code_cell(code)]), tmp_path / f"{name}.ipynb")
    page = interface_page(sorted(tmp_path.glob("*.ipynb")))
    assert page.endswith("|---|---|---|\n| `mlhood` | `check`, `progress` | P1, P2 |\n")
