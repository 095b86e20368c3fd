"""Common edits, written with the public verbs: read them to write your own.

Each takes a model, or a graph of one, and returns a new model with the weights of the
old one. The old one is not touched.
"""

from .activations import swap_activation as swap_activation
from .adapters import insert_adapters as insert_adapters
from .batchnorm import fold_batchnorm as fold_batchnorm
from .channels import change_channels as change_channels
from .heads import features as features
from .heads import swap_head as swap_head
from .lora import add_lora as add_lora
from .pruning import Cut as Cut
from .pruning import Step as Step
from .pruning import prune_channels as prune_channels
from .pruning import pruning_rule as pruning_rule

__all__ = [
    "Cut",
    "Step",
    "add_lora",
    "change_channels",
    "features",
    "fold_batchnorm",
    "insert_adapters",
    "prune_channels",
    "pruning_rule",
    "swap_activation",
    "swap_head",
]
