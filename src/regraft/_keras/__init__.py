"""All that regraft knows about Keras's private attributes.

No other module imports `keras.src` or names an attribute with a leading
underscore on a Keras object. When Keras changes, this is the room to look at.
"""

from .calls import *
from .classes import *
from .comparing import *
from .globals import *
from .graph import *
from .layers import *
from .making import *
from .mapping import *
from .names import *
from .operations import *
from .optimizers import *
from .policies import *
from .quantized import *
from .specs import *
from .tracking import *
from .training import *
from .trees import *
from .variables import *
from .wrappers import *
