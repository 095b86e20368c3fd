"""Deleting channels, with all that follows from it.

`cut` says which channels of a tensor are deleted, `table` who knows what that means
for a layer, `weighted` and `shaping` what it means for those of Keras, `flow` follows
the cuts through a model, and `recipe` is what users call.
"""

from . import shaping as shaping
from . import weighted as weighted
from .cut import Cut as Cut
from .cut import Step as Step
from .recipe import prune_channels as prune_channels
from .table import pruning_rule as pruning_rule
