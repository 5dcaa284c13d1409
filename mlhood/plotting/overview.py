"""The picture that opens the README: the way from `model(x)` to the processor, with the five projects on it."""

from __future__ import annotations

from matplotlib.figure import Figure

from mlhood.plotting.diagram import LIGHT_BLUE, LIGHT_GREEN, LIGHT_GREY, LIGHT_YELLOW, arrow, box, canvas

BOX_WIDTH, BOX_HEIGHT, PITCH = 1.42, 0.86, 1.97
TORCH, JAX = 2.62, 0.52  # baseline of each lane, in inches

# title, what happens there
TORCH_LANE = (
    ("model(x)", "PyTorch"),
    ("ONNX graph", "operators, shapes,\nweights in a file"),
    ("integer graph", "typed, fused,\nquantised to 8 bits"),
    ("vector code", "convolution as a\nladder of kernels"),
    ("tiles in caches", "sliced, reordered,\nstationary operands"),
)
TORCH_STEPS = ("export", "compile", "generate", "tile")
JAX_LANE = (
    ("f(x)", "JAX"),
    ("jaxpr", "traced once,\ndifferentiated"),
    ("HLO", "what XLA fuses\nand lays out"),
    ("sharded program", "collectives between\nmany devices"),
)
JAX_STEPS = ("trace", "lower", "partition")
# label, left and right end in boxes, lane, height of the label's line
PROJECTS = (
    ("P1  export and inspect", 0, 1, TORCH + 1.22),
    ("P2  a compiler", 1, 2, TORCH + 1.62),
    ("P3  kernels", 3, 3, TORCH + 1.22),
    ("P4  dataflow", 4, 4, TORCH + 1.22),
    ("P5  JAX under the hood: operators, tracing, gradients, XLA, a cluster", 0, 3, JAX - 0.24),
)


def overview() -> Figure:
    """Draw the two lanes, PyTorch's and JAX's, that meet in the processor; brackets name the projects.

    Returns:
        A figure 11.3 inches wide: black text on light fills, no meaning by colour alone.
    """
    figure, axes = canvas(11.3, 4.72)
    for lane, steps, y, colour in (
        (TORCH_LANE, TORCH_STEPS, TORCH, LIGHT_BLUE),
        (JAX_LANE, JAX_STEPS, JAX, LIGHT_GREEN),
    ):
        for i, (title, text) in enumerate(lane):
            box(axes, PITCH * i, y, BOX_WIDTH, BOX_HEIGHT, "", LIGHT_YELLOW if i == 0 else colour)
            centre = PITCH * i + BOX_WIDTH / 2
            axes.text(centre, y + 0.64, title, ha="center", va="center", fontsize=10, weight="bold")
            axes.text(centre, y + 0.28, text, ha="center", va="center", fontsize=8.2)
        for i, step in enumerate(steps):
            middle = y + BOX_HEIGHT / 2
            arrow(axes, (PITCH * i + BOX_WIDTH + 0.03, middle), (PITCH * (i + 1) - 0.03, middle))
            axes.text(
                PITCH * i + (PITCH + BOX_WIDTH) / 2, middle + 0.13, step, ha="center", fontsize=8.2, style="italic"
            )
    right = PITCH * 5
    box(axes, right, JAX, BOX_WIDTH, TORCH + BOX_HEIGHT - JAX, "", LIGHT_GREY)
    axes.text(
        right + BOX_WIDTH / 2,
        (JAX + TORCH + BOX_HEIGHT) / 2 + 0.42,
        "processor",
        ha="center",
        fontsize=10.5,
        weight="bold",
    )
    text = "vector units,\ncaches, memory;\na systolic array,\nsimulated"
    axes.text(
        right + BOX_WIDTH / 2, (JAX + TORCH + BOX_HEIGHT) / 2 - 0.16, text, ha="center", va="center", fontsize=8.2
    )
    arrow(axes, (PITCH * 4 + BOX_WIDTH + 0.03, TORCH + BOX_HEIGHT / 2), (right - 0.03, TORCH + BOX_HEIGHT / 2))
    arrow(axes, (PITCH * 3 + BOX_WIDTH + 0.03, JAX + BOX_HEIGHT / 2), (right - 0.03, JAX + BOX_HEIGHT / 2))
    note = "every step is checked against a library that the course did not write, and measured beside it"
    axes.text(
        PITCH * 2.5 + BOX_WIDTH / 2 - 0.2,
        (JAX + BOX_HEIGHT + TORCH) / 2,
        note,
        ha="center",
        va="center",
        fontsize=8.6,
        style="italic",
        color="#333333",
    )
    for label, first, last, y in PROJECTS:
        left, end = PITCH * first, PITCH * last + BOX_WIDTH
        tick = 0.08 if y < JAX else -0.08
        axes.plot([left, left, end, end], [y + tick, y, y, y + tick], color="#222222", lw=1.2)
        axes.text((left + end) / 2, y + (-0.2 if y < JAX else 0.08), label, ha="center", fontsize=9.6, weight="bold")
    return figure
