"""Layered drawings of directed acyclic graphs, as SVG and PNG, by matplotlib alone.

In: a `Scene` of `Box`es with `Line`s of text, `Port`s where values leave, `Wire`s to the boxes that use them, and a
`StyleSheet` of the `NodeStyle`s and `WireStyle`s that the key explains; `fit_text` makes any name drawable. Out: a
`Drawing` from `draw_scene`, `draw_side_by_side` (a comparison) or `draw_mirrored` (the second scene upside down).

This package does not know what the boxes mean. Its modules are internal, in the order of the pipeline: `scene`
(with its alternative text), `text_metrics`, `shapes`, `layers`, `arrangement`, `layout`, `render`, `drawing`.
"""

from mlhood.graph_drawing.drawing import Drawing, check_path, draw_mirrored, draw_scene, draw_side_by_side
from mlhood.graph_drawing.scene import Box, NodeStyle, Port, Scene, StyleSheet, Wire, WireStyle
from mlhood.graph_drawing.text_metrics import Line, fit_text

__all__ = [
    "Box",
    "Drawing",
    "Line",
    "NodeStyle",
    "Port",
    "Scene",
    "StyleSheet",
    "Wire",
    "WireStyle",
    "check_path",
    "draw_mirrored",
    "draw_scene",
    "draw_side_by_side",
    "fit_text",
]
