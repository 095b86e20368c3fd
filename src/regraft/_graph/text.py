"""A graph as text: one line a node."""

from __future__ import annotations

from typing import Any

from .. import _keras


def table(graph: Any) -> str:
    """Returns the lines of all nodes, in columns, under a line of their own."""
    rows = [cells(node) for node in graph.walk()]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(4)]
    layers = [node.layer for node in graph.nodes]
    total = _keras.count_parameters(*layers)
    lines = [f"{graph.name}: {len(graph.nodes)} nodes, {total:,} parameters"]
    for row in rows:
        columns = [row[i].ljust(widths[i]) for i in range(3)]
        columns.append(row[3].rjust(widths[3] + 3))
        lines.append("  ".join([*columns, row[4]]).rstrip())
    return "\n".join(lines)


def line(node: Any) -> str:
    """Returns what is to be said of one node."""
    return "  ".join(cell for cell in cells(node) if cell)


def cells(node: Any) -> tuple[str, str, str, str, str]:
    """Returns path, class, output shapes, parameters, and where inputs come from."""
    indent = "  " * node.path.count("/")
    call = f" (call {node.call + 1} of {node.calls})" if node.calls > 1 else ""
    shapes = ", ".join(_shape(output) for output in node.outputs)
    parameters = "shared" if node.call else f"{node.parameters:,}"
    sources = ", ".join(map(str, node.sources))
    return (
        f"{indent}{node.path}{call}",
        type(node.layer).__name__,
        shapes,
        parameters,
        f"<- {sources}" if sources else "",
    )


def _shape(output: Any) -> str:
    return f"{output.shape}{' masked' if output.is_masked else ''}"
