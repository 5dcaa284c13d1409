"""The finished drawing: shows itself in a notebook, and is saved as SVG or PNG."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from mlhood.compiler.hir.drawing.families import FAMILIES
from mlhood.errors import CompilerError
from mlhood.files.atomic import check_output, write_atomic
from mlhood.graph_drawing.placement import Placement
from mlhood.graph_drawing.render import INKS, PIXELS_AN_INCH
from mlhood.graph_drawing.text_metrics import legal

_SHARPNESS = 2.0  # dots for a pixel, so that a fine screen shows it sharp
_MOST_DOTS = 24_000_000
_LONGEST_SIDE = 30_000  # dots; matplotlib draws no more than 65,535
_SHADES = 7
UNHINTED: dict[Any, Any] = {"text.hinting": "no_hinting"}  # hinting makes letters wider than they were measured
_BOX = re.compile(r'<g id="box-(\d+)">')
_FONTS = "'DejaVu Sans', 'Bitstream Vera Sans', Verdana, Geneva, sans-serif"  # all of about the same width


@cache
def _palette() -> Image.Image:
    """Return all colours of drawings: those of boxes, of ink, and the shades between where letters have soft edges."""
    shades = np.linspace(0, 1, _SHADES)[:, None]
    papers = dict.fromkeys(to_rgb(family.colour) for family in FAMILIES.values())
    colours = [np.array(paper) * (1 - shades) + np.array(to_rgb(ink)) * shades for ink in INKS for paper in papers]
    palette = Image.new("P", (1, 1))
    palette.putpalette(np.rint(np.concatenate(colours) * 255).astype(np.uint8).tobytes())
    return palette


def check_drawing(path: Path) -> None:
    """Say before long work whether its drawing could be saved there.

    Raises:
        CompilerError: The name does not end in .svg or .png.
        OutputError: The folder does not exist, or the path is a folder.
    """
    kind = path.suffix.lower()
    if kind not in (".svg", ".png"):
        raise CompilerError(
            "a drawing of a graph is SVG or PNG",
            where=path,
            expected="a name that ends in .svg or .png",
            got=kind or "no ending",
            todo=f"save it as {path.stem}.svg",
        )
    check_output(path)


class Drawing:
    """A drawing of a graph, or of the difference of two.

    In a notebook it shows itself as a PNG, sharp on fine screens and at the size at which letters are easy to read,
    which GitHub shows too. The same graph always gives the same bytes with the same matplotlib. In an
    SVG, the full name of a box shows where the mouse rests on it.

    Args:
        placement: What stands where.
        figure: Makes the figure; called once for each format, as matplotlib's figures are changed by drawing them.
        name: What is drawn.
    """

    def __init__(self, placement: Placement, figure: Callable[[], Figure], name: str) -> None:
        self.placement = placement
        self.figure = figure
        self.name = name

    def __repr__(self) -> str:
        return f"Drawing({self.name!r}, {len(self.placement.boxes)} boxes)"

    @cached_property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels, at 96 to the inch."""
        width, height = self.figure().get_size_inches()
        return round(width * PIXELS_AN_INCH), round(height * PIXELS_AN_INCH)

    @cached_property
    def svg(self) -> str:
        """The drawing as SVG, in which the words are text that can be searched."""
        buffer = io.StringIO()
        with mpl.rc_context({"svg.hashsalt": "mlhood", "svg.fonttype": "none", "path.simplify": False}):
            FigureCanvasSVG(self.figure()).print_svg(buffer, metadata={"Date": None, "Title": legal(self.name)})
        text = buffer.getvalue().replace("'DejaVu Sans'", _FONTS)
        return _BOX.sub(lambda found: found[0] + self._title(int(found[1])), text)

    def _title(self, number: int) -> str:
        """What a browser shows when the mouse rests on a box: its name in full."""
        return f"<title>{escape(legal(self.placement.boxes[number].box.key[1]))}</title>"

    @cached_property
    def png(self) -> bytes:
        """The drawing as PNG, of few colours so that it is small."""
        width, height = self.size
        sharpness = min(_SHARPNESS, _LONGEST_SIDE / max(width, height), (_MOST_DOTS / (width * height)) ** 0.5)
        figure = self.figure()
        figure.set_dpi(PIXELS_AN_INCH * sharpness)
        canvas = FigureCanvasAgg(figure)
        with mpl.rc_context(UNHINTED):
            canvas.draw()
        picture = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
        buffer = io.BytesIO()
        picture.quantize(palette=_palette(), dither=Image.Dither.NONE).save(buffer, "png", optimize=True)
        return buffer.getvalue()

    def save(self, path: str | Path) -> Path:
        """Write the drawing to a file that ends in .svg or .png, whole or not at all, and return its path.

        Raises:
            CompilerError: The name has another ending.
            OutputError: The file cannot be written.
        """
        path = Path(path)
        check_drawing(path)
        return write_atomic(path, self.svg.encode("utf-8") if path.suffix.lower() == ".svg" else self.png)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """What a notebook shows: the PNG, as wide as it is meant."""
        width, height = self.size
        return {"image/png": self.png, "text/plain": repr(self)}, {"image/png": {"width": width, "height": height}}
