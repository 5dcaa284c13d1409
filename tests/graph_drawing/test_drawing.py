"""Drawings as files and in notebooks, and the public interface of the package."""

import io
import re
from xml.etree import ElementTree

import pytest
from IPython.core.formatters import DisplayFormatter
from PIL import Image

from mlhood.errors import DrawingError, OutputError
from mlhood.graph_drawing import (
    Box,
    Line,
    NodeStyle,
    Port,
    Scene,
    StyleSheet,
    Wire,
    WireStyle,
    draw_mirrored,
    draw_scene,
    draw_side_by_side,
    fit_text,
)
from mlhood.graph_drawing.text_metrics import escape_xml
from tests.graph_drawing.geometry import check, check_words

RED, BLUE, UNUSED = (
    NodeStyle("reds", "#ffaaaa", "barred"),
    NodeStyle("blues", "#aaaaff", "hexagon"),
    NodeStyle("greys", "#cccccc", "cut"),
)
THIN, THICK = WireStyle("thin"), WireStyle("thick", "double")
STYLES = StyleSheet((RED, BLUE, UNUSED), (THIN, THICK))


def scene(name: str = "scene", mark: str = "") -> Scene:
    source = Box(
        ("node", "source <1>"),
        RED,
        (Line("source", 13.0, bold=True),),
        (Port((Line("a"),), THIN), Port((Line("b"),), THICK)),
        mark=mark,
    )
    target = Box(("node", "target"), BLUE, (Line("target"),), arrow_labels=["left", "right"])
    return Scene(name, [source, target], [Wire(0, 0, 1, 0), Wire(0, 1, 1, 1)], STYLES)


def words(drawing) -> list[str]:
    root = ElementTree.fromstring(drawing.svg)
    return ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]


def test_the_key_explains_what_is_used():
    drawing = draw_scene(scene())
    check(drawing.placement)
    check_words(drawing)
    assert words(drawing) == ["a", "b", "left", "right", "source", "target", "reds", "blues", "thin", "thick"]


def test_a_comparison_has_titles_and_marks():
    drawing = draw_side_by_side((scene(mark="removed"), scene(mark="added")), ("before", "after"), name="both")
    assert {"before", "after", "added", "removed", "+", "−"} <= {*words(drawing)}
    assert drawing.name == "both"
    check_words(drawing)


def test_a_mirrored_drawing_has_both_scenes():
    drawing = draw_mirrored((scene(), scene()), ("down", "up"), name="both")
    assert words(drawing).count("source") == 2
    check_words(drawing)


def test_no_colour_is_lost_in_a_png():
    drawing = draw_scene(scene())
    picture = Image.open(io.BytesIO(drawing.png)).convert("RGB")
    assert picture.size == pytest.approx([2 * length for length in drawing.size], abs=2)
    colors = {color for _, color in picture.getcolors(100_000)}
    assert {(255, 170, 170), (170, 170, 255)} <= colors


def test_an_svg_has_tooltips_and_neither_scripts_nor_links():
    drawing = draw_scene(scene())
    root = ElementTree.fromstring(drawing.svg)
    assert {title.text for title in root.iter("{http://www.w3.org/2000/svg}title")} >= {"source <1>", "target"}
    assert "<script" not in drawing.svg
    assert not re.search(r'href="(?!#)', drawing.svg)


def test_drawings_are_saved_by_suffix(tmp_path):
    drawing = draw_scene(scene())
    assert drawing.save(tmp_path / "a.SVG").read_text(encoding="utf-8") == drawing.svg
    assert drawing.save(tmp_path / "a.png").read_bytes() == drawing.png
    with pytest.raises(DrawingError, match="SVG or PNG") as caught:
        drawing.save(tmp_path / "a.pdf")
    assert "a.svg" in str(caught.value)
    with pytest.raises(OutputError):
        drawing.save(tmp_path / "missing" / "a.svg")


def test_a_notebook_shows_the_png_at_its_size():
    drawing = draw_scene(scene())
    data, metadata = DisplayFormatter().format(drawing)
    assert {*data} == {"image/png", "text/plain"}  # not the SVG, too: a notebook stays small
    assert data["image/png"].startswith(b"\x89PNG")
    assert metadata["image/png"] == {"width": drawing.size[0], "height": drawing.size[1], "alt": drawing.alt_text}


@pytest.mark.parametrize(
    ("text", "fitted"), [("conv1", "conv1"), ("a" * 40 + "b", f"{'a' * 16}…{'a' * 16}b"), ("a\n\ud800", "a\\n\\ud800")]
)
def test_text_is_made_to_fit(text, fitted):
    assert fit_text(text) == fitted


def test_xml_is_valid_for_any_name():
    assert escape_xml("a\x00\u202eü") == "a\\x00\\u202eü"
