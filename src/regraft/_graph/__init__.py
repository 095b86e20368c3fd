"""Models as values: read a model's graph, edit it, build it again.

From the bottom up: `table` is the form in which graphs are edited, `assemble` makes
the operations it describes, `infer` tries them, `splice` adds calls and leads tensors,
`edit`, `cut` and `attributes` are the verbs, `build` makes models. On top of it `node`
and `graph` are what users see, named by `select`, shown by `text` and `picture`.
"""

from .graph import Graph as Graph
from .graph import graph as graph
from .join import join as join
from .lineage import Fate as Fate
from .lineage import Lineage as Lineage
from .lineage import lineage as lineage
from .node import Node as Node
from .node import Ref as Ref
from .select import Selection as Selection
