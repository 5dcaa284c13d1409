"""A hand that draws the digits of the test set on the page's canvas."""

import numpy as np

from mlhood.models import digits

# for the page: strokes of (x0, x1, y) in pixels of the canvas, by events of a pen; returns what the page then reads
DRAW = """(strokes) => {
    document.getElementById("clear").click();
    const pad = document.getElementById("pad"), area = pad.getBoundingClientRect(), frame = pad.clientLeft;
    const send = (type, x, y) => pad.dispatchEvent(new PointerEvent(type, {
        clientX: area.left + frame + x, clientY: area.top + frame + y, button: 0, buttons: 1, bubbles: true }));
    for (const [from, to, y] of strokes) {
        send("pointerdown", from, y);
        send("pointermove", to, y);
        send("pointerup", to, y);
    }
    return document.getElementById("answer").textContent;
}"""


def bitmap_of(image: np.ndarray) -> np.ndarray:
    """Return a bitmap [32, 32] as the data set was made from: of each 4 x 4 pixels, as many are dark as the cell is.

    The pixels in the middle of each 3 x 3 of the enlarged picture are those of the data set's 8 x 8. Which pixels of a
    cell are dark is not in the data set: those that are nearest to its darker neighbours.
    """
    ink = (image - image.min()) / (image.max() - image.min())
    grid = np.rint(16 * ink[5:29:3, 5:29:3]).astype(int)
    centres = np.clip((np.arange(32) + 0.5) / 4 - 0.5, 0, 7)
    weights = np.maximum(0, 1 - np.abs(centres[:, None] - np.arange(8)))
    smooth = weights @ grid @ weights.T
    bitmap = np.zeros((32, 32), bool)
    for row, column in np.ndindex(8, 8):
        cell = smooth[4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
        darkest = np.argsort(-cell, axis=None, kind="stable")[: grid[row, column]]
        bitmap[4 * row + darkest // 4, 4 * column + darkest % 4] = True
    return bitmap


def strokes_of(image: np.ndarray) -> list[list[float]]:
    """Return the horizontal strokes of the thin pen, 8 pixels wide, that darken a digit's bitmap."""
    strokes = []
    for row, line in enumerate(bitmap_of(image)):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], line.astype(int), [0]])))
        for start, stop in edges.reshape(-1, 2):
            strokes.append([8 * start + 16, 8 * stop + 8, 8 * row + 16])
    return [[float(number) for number in stroke] for stroke in strokes]


def drawn_digits(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return pictures [count, 32, 32] of the data set's test half, and their labels."""
    data = digits("")
    return data.test_images[:count, 0], data.test_labels[:count]
