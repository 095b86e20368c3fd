"""Models as values: read a model's graph, edit it, build it again.

From the bottom up: `table`, with `calls` and `slots`, is the form in which graphs are
edited, `assemble` makes the operations it describes, `trials` and `infer` try them,
`splice` adds calls and leads tensors, `edit`, `cut` (with `inlining`) and `attributes`
are the verbs, `build` makes models. On top of it `node` and `reading` are what users
see, shown by `text` and `picture`.
"""

from .._select import Selection as Selection
from .fates import Fate as Fate
from .fates import Lineage as Lineage
from .fates import lineage as lineage
from .joining import join as join
from .node import Node as Node
from .node import Ref as Ref
from .reading import Graph as Graph
from .reading import graph as graph
