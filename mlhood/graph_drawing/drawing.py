"""The finished drawing: shows itself in a notebook, and is saved as SVG or PNG."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from functools import cache, cached_property, partial
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

from mlhood.errors import DrawingError
from mlhood.files.atomic import check_output, write_atomic
from mlhood.graph_drawing.layout import Placement, place_mirrored, place_scene, place_side_by_side
from mlhood.graph_drawing.render import INKS, PIXELS_PER_INCH, render
from mlhood.graph_drawing.scene import Scene, StyleSheet, describe_comparison, describe_mirrored, describe_scene
from mlhood.graph_drawing.text_metrics import escape_xml

_SCALE = 2.0  # dots per pixel, for high-resolution screens
_MAX_DOTS = 24_000_000
_MAX_SIDE = 30_000  # dots; matplotlib draws at most 65,535
_SHADES = 7
UNHINTED: dict[Any, Any] = {"text.hinting": "no_hinting"}  # hinted letters are wider than they were measured
_BOX_ID = re.compile(r'<g id="box-(\d+)">')
_FONTS = "'DejaVu Sans', 'Bitstream Vera Sans', Verdana, Geneva, sans-serif"  # of similar width


def check_path(path: Path) -> None:
    """Check, before expensive work, that a drawing can be saved to a path.

    Raises:
        DrawingError: The name does not end in .svg or .png.
        OutputError: The folder does not exist, or the path is a folder.
    """
    suffix = path.suffix.lower()
    if suffix not in (".svg", ".png"):
        raise DrawingError(
            "a drawing of a graph is saved as SVG or PNG",
            where=path,
            expected="a name that ends in .svg or .png",
            got=suffix or "no suffix",
            todo=f"save it as {path.stem}.svg",
        )
    check_output(path)


class Drawing:
    """A drawing of one graph or of two.

    In a notebook it shows itself as a PNG at a size that is easy to read, in the resolution of fine screens; GitHub
    shows that, too. The same graph always gives the same bytes with the same matplotlib. In an SVG, the full name of a
    box is its tooltip.

    Args:
        placement: Positions of everything.
        styles: The styles that boxes and wires may have.
        figure: Makes the figure; called once for each format, since drawing a matplotlib figure changes it.
        name: Title.
        alt_text: Text for readers who do not see the picture.
    """

    def __init__(
        self, placement: Placement, styles: StyleSheet, figure: Callable[[], Figure], name: str, alt_text: str
    ) -> None:
        self.placement = placement
        self.styles = styles
        self.figure = figure
        self.name = name
        self.alt_text = alt_text

    def __repr__(self) -> str:
        return f"Drawing({self.name!r}, {len(self.placement.boxes)} boxes)"

    @cached_property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels, at 96 to the inch."""
        width, height = self.figure().get_size_inches()
        return round(width * PIXELS_PER_INCH), round(height * PIXELS_PER_INCH)

    @cached_property
    def svg(self) -> str:
        """The drawing as SVG, with searchable text."""
        buffer = io.StringIO()
        with mpl.rc_context({"svg.hashsalt": "mlhood", "svg.fonttype": "none", "path.simplify": False}):
            FigureCanvasSVG(self.figure()).print_svg(buffer, metadata={"Date": None, "Title": escape_xml(self.name)})
        names = [escape(escape_xml(placed.box.key[1])) for placed in self.placement.boxes]
        svg = buffer.getvalue().replace("'DejaVu Sans'", _FONTS)
        return _BOX_ID.sub(lambda match: f"{match[0]}<title>{names[int(match[1])]}</title>", svg)

    @cached_property
    def png(self) -> bytes:
        """The drawing as PNG, with few colours to keep it small."""
        width, height = self.size
        scale = min(_SCALE, _MAX_SIDE / max(width, height), (_MAX_DOTS / (width * height)) ** 0.5)
        figure = self.figure()
        figure.set_dpi(PIXELS_PER_INCH * scale)
        canvas = FigureCanvasAgg(figure)
        with mpl.rc_context(UNHINTED):
            canvas.draw()
        image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
        buffer = io.BytesIO()
        palette = _palette(tuple(style.color for style in self.styles.nodes))
        image.quantize(palette=palette, dither=Image.Dither.NONE).save(buffer, "png", optimize=True)
        return buffer.getvalue()

    def save(self, path: str | Path) -> Path:
        """Write the drawing atomically to a file that ends in .svg or .png, and return its path.

        Raises:
            DrawingError: The name has another ending.
            OutputError: The file cannot be written.
        """
        path = Path(path)
        check_path(path)
        return write_atomic(path, self.svg.encode("utf-8") if path.suffix.lower() == ".svg" else self.png)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Show the PNG in a notebook, at its size in pixels, with alternative text."""
        width, height = self.size
        metadata = {"width": width, "height": height, "alt": self.alt_text}
        return {"image/png": self.png, "text/plain": repr(self)}, {"image/png": metadata}


@cache
def _palette(colors: tuple[str, ...]) -> Image.Image:
    """Return all colours of a drawing: of boxes, of ink, and the shades between them at the soft edges of letters."""
    shades = np.linspace(0, 1, _SHADES)[:, None]
    papers = dict.fromkeys(map(to_rgb, colors))
    blends = [np.array(paper) * (1 - shades) + np.array(to_rgb(ink)) * shades for ink in INKS for paper in papers]
    palette = Image.new("P", (1, 1))
    palette.putpalette(np.rint(np.concatenate(blends) * 255).astype(np.uint8).tobytes())
    return palette


def draw_scene(scene: Scene, *, name: str | None = None) -> Drawing:
    """Draw a scene from top to bottom.

    Args:
        scene: What to draw.
        name: Title; the scene's if omitted.

    Raises:
        DrawingError: Too many values pass by other nodes to be drawn.
    """
    placement = place_scene(scene)
    figure = partial(render, placement, scene.styles)
    return Drawing(placement, scene.styles, figure, name or scene.name, describe_scene(scene))


def draw_side_by_side(scenes: tuple[Scene, Scene], titles: tuple[str, str], *, name: str) -> Drawing:
    """Draw two scenes side by side, boxes of one key at the same height; arguments and errors as of `draw_scene`."""
    placement, divider = place_side_by_side(scenes, titles)
    styles = scenes[0].styles
    figure = partial(render, placement, styles, divider=divider)
    return Drawing(placement, styles, figure, name, describe_comparison(scenes, titles))


def draw_mirrored(scenes: tuple[Scene, Scene], titles: tuple[str, str], *, name: str) -> Drawing:
    """Draw two scenes with the same wires side by side; those of the second one point upwards. As `draw_scene`."""
    placement, upward = place_mirrored(scenes, titles)
    styles = scenes[0].styles
    figure = partial(render, placement, styles, upward=upward)
    return Drawing(placement, styles, figure, name, describe_mirrored(scenes, titles))
