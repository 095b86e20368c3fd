"""How each class of object is copied.

A *maker* takes the walk and an object, notes the object's copy with
`walk.remember` and returns it. The copy of a mutable object is an empty shell
that asks to be filled later. `choose_maker` decides once per class.
"""

from .ahead import Waiting as Waiting
from .ahead import in_order as in_order
from .ahead import plain_parts as plain_parts
from .base import Maker as Maker
from .choice import choose_maker as choose_maker
from .choice import is_plain as is_plain
from .choice import set_copier as set_copier
from .choice import share as share
from .weak import PROXIES as PROXIES
from .weak import aimed_at_copy as aimed_at_copy
from .weak import target_of as target_of
