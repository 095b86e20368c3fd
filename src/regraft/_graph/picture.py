"""A graph as a picture: boxes in rows, one row for each step away from the inputs."""

from __future__ import annotations

from html import escape
from typing import Any

_CHARACTER, _HEIGHT, _GAP, _STEP, _MARGIN = 7, 38, 18, 70, 12


def svg(graph: Any) -> str:
    """Draws the nodes of a graph, those inside others left out."""
    rows = _rows(graph)
    boxes: dict[tuple[str, int], tuple[float, float, float]] = {}
    width = 0.0
    for y, row in enumerate(rows):
        x = float(_MARGIN)
        for node in row:
            size = _CHARACTER * max(map(len, _texts(node))) + 16
            boxes[node.path, node.call] = (x, _MARGIN + y * _STEP, size)
            x += size + _GAP
        width = max(width, x)
    height = _MARGIN * 2 + _STEP * (len(rows) - 1) + _HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" '
        f'height="{height:.0f}" font-family="monospace" font-size="11">',
        f"<title>{escape(graph.name)}</title>",
    ]
    for node in graph.nodes:
        for source in dict.fromkeys((s.path, s.call) for s in node.sources):
            parts.append(_arrow(boxes[source], boxes[node.path, node.call]))
    parts += [_box(node, *boxes[node.path, node.call]) for node in graph.nodes]
    return "\n".join([*parts, "</svg>"])


def _rows(graph: Any) -> list[list[Any]]:
    depth: dict[tuple[str, int], int] = {}
    rows: list[list[Any]] = []
    for node in graph.nodes:
        above = [depth[source.path, source.call] for source in node.sources]
        level = depth[node.path, node.call] = 1 + max(above, default=-1)
        rows += [[] for _ in range(level + 1 - len(rows))]
        rows[level].append(node)
    return rows


def _texts(node: Any) -> tuple[str, str]:
    call = f" #{node.call + 1}" if node.calls > 1 else ""
    shapes = ", ".join(str(output.shape) for output in node.outputs)
    return f"{node.path}{call}", f"{type(node.layer).__name__} {shapes}"


def _box(node: Any, x: float, y: float, width: float) -> str:
    first, second = map(escape, _texts(node))
    dash = ' stroke-dasharray="4 2"' if any(o.is_masked for o in node.outputs) else ""
    return (
        f'<g><rect x="{x}" y="{y}" width="{width}" height="{_HEIGHT}" rx="5" '
        f'fill="#eef3fb" stroke="#4a6fa5"{dash}/>'
        f'<text x="{x + 8}" y="{y + 15}" fill="#1d2b3f">{first}</text>'
        f'<text x="{x + 8}" y="{y + 30}" fill="#5b6b82">{second}</text></g>'
    )


def _arrow(start: tuple[float, float, float], end: tuple[float, float, float]) -> str:
    x1, y1 = start[0] + start[2] / 2, start[1] + _HEIGHT
    x2, y2 = end[0] + end[2] / 2, end[1]
    middle = (y1 + y2) / 2
    return (
        f'<path d="M{x1} {y1} C{x1} {middle} {x2} {middle} {x2} {y2}" fill="none" '
        'stroke="#8a97a8"/>'
    )
