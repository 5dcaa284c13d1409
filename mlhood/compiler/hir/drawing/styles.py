"""How tensor programs are drawn: families of operators share a colour and an outline, kinds of values a line."""

from mlhood.graph_drawing import NodeStyle, StyleSheet, WireStyle

# Light tints of the palette of Okabe and Ito, which colour-blind readers can distinguish; their lightness differs, too.
FAMILIES: dict[str, NodeStyle] = {
    "end": NodeStyle("input, output", "#ffffff", "stadium"),
    "product": NodeStyle("convolution, dense", "#f9d798", "rectangle"),
    "normalization": NodeStyle("normalisation", "#fbf6c2", "cut"),
    "activation": NodeStyle("activation", "#b5e3d2", "rounded"),
    "pooling": NodeStyle("pooling, reduction", "#c3e5f7", "funnel"),
    "arithmetic": NodeStyle("arithmetic", "#f2cdb6", "hexagon"),
    "shape": NodeStyle("shape, order", "#e3e3e3", "slanted"),
    "quantization": NodeStyle("quantisation", "#ecd0e0", "barred"),
    "other": NodeStyle("other", "#f7f7f7", "rectangle"),
}

FLOAT = WireStyle("floating point")
QUANTIZED = WireStyle("quantised", "double")
INTEGER = WireStyle("integers, bool", "dotted")

STYLES = StyleSheet(tuple(FAMILIES.values()), (FLOAT, QUANTIZED, INTEGER))
