"""Families of operators, which share a colour and an outline."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """How a family looks.

    Args:
        title: What the key under the drawing calls it.
        colour: Fill: a light tint of the palette of Okabe and Ito, which colour-blind readers can tell apart; their
            lightness differs too.
        outline: Form of the box, by which they differ in a copy without colour; see `drawing.outlines`.
    """

    title: str
    colour: str
    outline: str


FAMILIES: dict[str, Family] = {
    "end": Family("input, output", "#ffffff", "stadium"),
    "product": Family("convolution, dense", "#f9d798", "rectangle"),
    "normalization": Family("normalisation", "#fbf6c2", "cut"),
    "activation": Family("activation", "#b5e3d2", "rounded"),
    "pooling": Family("pooling, reduction", "#c3e5f7", "funnel"),
    "arithmetic": Family("arithmetic", "#f2cdb6", "hexagon"),
    "shape": Family("shape, order", "#e3e3e3", "slanted"),
    "quantization": Family("quantisation", "#ecd0e0", "barred"),
    "other": Family("other", "#f7f7f7", "rectangle"),
}
