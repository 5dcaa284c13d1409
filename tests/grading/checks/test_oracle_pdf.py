"""What is read from a student's PDF."""

import io

from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.figure import Figure

from mlhood.grading.checks.oracle import _read_pdf


def test_a_ligature_is_read_as_its_letters():
    figure = Figure(figsize=(4, 2))
    figure.text(0.1, 0.5, "eoa\ufb01dkrq and Conv")  # as a font draws it
    data = io.BytesIO()
    FigureCanvasPdf(figure).print_figure(data, format="pdf")
    pages, (width, height), text = _read_pdf(data.getvalue())
    assert (pages, width, height) == (1, 288, 144)
    assert "eoafidkrq and Conv" in text
