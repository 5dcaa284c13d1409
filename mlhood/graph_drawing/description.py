"""Descriptions of scenes in a sentence or two, the alternative text of their drawings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from mlhood.graph_drawing.scene import Box, Scene

_MAX_CHAIN = 220  # characters
_MAX_NAMES = 8


def describe_scene(scene: Scene) -> str:
    """Describe a graph: where it begins and ends, and its nodes in topological order, or counted if they are many."""
    nodes = _nodes(scene)
    titles = [_title(box) for box in nodes]
    chain = ", ".join(titles)
    if len(chain) > _MAX_CHAIN:
        counts = Counter(titles).most_common()
        chain = _names(f"{count} {title}" for title, count in counts)
    users = Counter((wire.source, wire.port) for wire in scene.wires)
    shared = sum(count > 1 for count in users.values())
    branches = f"; {_count(shared, 'value')} with several users" if shared else ""
    return f"Graph of {_count(len(nodes), 'node')}{_ends(scene)}: {chain or 'none'}{branches}."


def describe_comparison(scenes: tuple[Scene, Scene], titles: tuple[str, str]) -> str:
    """Describe two graphs side by side by what differs between them."""
    parts = []
    for mark, scene in (("Removed", scenes[0]), ("Added", scenes[1]), ("Changed", scenes[1])):
        marked = [f"{_title(box)} {box.key[1]}" for box in scene.boxes if box.mark == mark.lower()]
        parts += [f"{mark}: {_names(marked)}."] if marked else []
    return f"Two graphs side by side, {titles[0]}; {titles[1]}. {' '.join(parts) or 'No differences.'}"


def describe_mirrored(scenes: tuple[Scene, Scene], titles: tuple[str, str]) -> str:
    """Describe a graph and its mirror image, whose wires point upwards."""
    titles_of_second = _names(dict.fromkeys(_title(box) for box in _nodes(scenes[1])))
    mirrored = f"On the right, {titles[1]}: the same graph with {titles_of_second}."
    return f"On the left, {titles[0]}: {describe_scene(scenes[0])} {mirrored}"


def _nodes(scene: Scene) -> list[Box]:
    return [box for box in scene.boxes if box.key[0] == "node"]


def _title(box: Box) -> str:
    return box.lines[0].text.replace(",", "")


def _ends(scene: Scene) -> str:
    """Return the boxes that are not nodes: " from x, w to result"."""
    sources, targets = {wire.source for wire in scene.wires}, {wire.target for wire in scene.wires}
    ends = [(i, _title(box)) for i, box in enumerate(scene.boxes) if box.key[0] != "node"]
    inputs = [title for i, title in ends if i in sources]
    outputs = [title for i, title in ends if i in targets]
    return (f" from {_names(inputs)}" if inputs else "") + (f" to {_names(outputs)}" if outputs else "")


def _names(names: Iterable[str]) -> str:
    """Return the first few names and how many there are besides."""
    names = list(names)
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
