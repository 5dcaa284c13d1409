"""Alternative text of figures: a kernel stores it with the picture, and every function that makes a figure sets it."""

import ast
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from nbformat.v4 import new_code_cell

from mlhood.grading.execution.kernel import Kernel
from mlhood.plotting.alt_text import alt_text, listing, set_alt_text
from tests.waiting import PATIENCE

PACKAGE = Path(__file__).parents[2] / "mlhood"
IMPORTS = """
%matplotlib inline
import matplotlib.pyplot as plt
from mlhood.plotting.alt_text import set_alt_text
"""
LINE = 'figure, axes = plt.subplots()\naxes.plot([1, 2])\nset_alt_text(figure, "A line from 1", "to 2.")\n'


def test_sentences_are_joined_and_line_breaks_become_spaces():
    figure = Figure()
    assert set_alt_text(figure, "A line\nfrom 1", "", " to  2.") is figure
    assert alt_text(figure) == "A line from 1 to 2."


def test_names_and_values_are_listed():
    assert listing({"naive": 0.9, "blocked": 12}) == "naive 0.9, blocked 12"
    assert listing([(1, "1x"), (1, "2x")]) == "1 1x, 1 2x"
    assert listing({}) == ""


@pytest.fixture(scope="module")
def displayed(tmp_path_factory):
    """Return a function that runs a cell in a kernel and returns its only output with a picture."""
    with Kernel(tmp_path_factory.mktemp("figures")) as kernel:

        def displayed(source):
            cell = new_code_cell(source)
            assert kernel.run(cell, PATIENCE).error == ""
            (output,) = [output for output in cell.outputs if "image/png" in output.get("data", {})]
            return output

        assert kernel.run(new_code_cell(IMPORTS), PATIENCE).error == ""
        yield displayed


@pytest.mark.parametrize(
    ("last_line", "kind"),
    [("plt.show()", "display_data"), ("plt.close(); figure", "execute_result"), ("display(figure)", "display_data")],
    ids=["show", "last expression", "display"],
)
def test_a_notebook_stores_the_alternative_text_with_the_picture(last_line, kind, displayed):
    output = displayed(f"{LINE}{last_line}" + ("\nplt.close()" if last_line.startswith("display") else ""))
    assert output.output_type == kind
    assert output.metadata["image/png"] == {"alt": "A line from 1 to 2."}
    assert output.data["image/png"].startswith("iVBORw0KGgo")
    assert output.data["text/plain"].startswith("<Figure")


def test_a_figure_without_alternative_text_is_displayed_as_usual(displayed):
    assert displayed("plt.plot([1, 2])\nplt.show()").metadata == {}


def figure_functions() -> dict[str, str]:
    """Return the sources of the package's functions that return a figure, by module and name."""
    sources = {}
    for path in [*sorted(PACKAGE.rglob("*_figures.py")), PACKAGE / "measure/roofline.py"]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.returns and ast.unparse(node.returns) == "Figure":
                sources[f"{path.stem}.{node.name}"] = ast.unparse(node)
    return sources


def test_every_function_that_makes_a_figure_sets_its_alternative_text():
    sources = figure_functions()
    assert len(sources) > 40
    helpers = {name.partition(".")[2] for name, source in sources.items() if "return set_alt_text(figure, " in source}
    for name, source in sources.items():
        (result,) = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Return)]
        assert isinstance(result.value, ast.Call), name
        assert ast.unparse(result.value.func) in {"set_alt_text", *helpers}, name
