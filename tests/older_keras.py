"""What the versions of Keras before the one that the tests are written for lack.

regraft supports them; `make oldest` runs the tests with the oldest one. Tests of what
that does not have, or does otherwise, are skipped there.
"""

import re

import keras

IS_OLDER = tuple(map(int, keras.__version__.split(".")[:2])) < (3, 15)

# What such a version says of that which it does not have.
LACKS = re.compile(
    "|".join(
        [
            r"module 'keras.optimizers' has no attribute",
            r"Unrecognized keyword arguments passed to",
            r"got an unexpected keyword argument 'block_size'",
            r"Invalid quantization mode",
            r"Invalid value for attribute `(regularizer|constraint)`",
            r"`inputs` not connected to `outputs`",  # A model may have unused inputs.
        ]
    )
)

# Tests of what it does otherwise, and why.
OTHERWISE = {
    "test_a_class_that_returns_more_than_its_graph_is_kept": "files keep the edit",
    "test_both_numbers_serve": "has the test above among its own",
    "test_demo_keeps_everything_and_says_what_keras_lost": "clone_model takes lambdas",
    "test_quantized_layers_are_refused": "layers are quantized in another order",
    "test_layers_inside_a_quantized_attention": "its layers are not quantized",
    "test_edit_is_found[layer_added_outside_of_the_graph]": "it is no layer of a model",
    "test_edit_is_found[bit_of_a_weight_outside_of_the_graph]": "as above",
    "test_edit_is_found[layer_removed]": "as above",
    "test_losses_that_layers_add": "activity losses are sums over rows",
    "test_losses_and_metrics_of_layers": "as above",
    "test_shares_of_different_sizes_count_by_their_rows": "as above",
    "test_there_and_back_is_the_same": "TensorFlow wraps the list of layers",
}
# Keras's own step fails: a loss that needs its gradient becomes an array.
OTHERWISE |= dict.fromkeys(
    [
        "test_two_processes_give_the_numbers_of_one",
        "test_only_rank_0_writes_files",
        "test_processes_draw_different_numbers",
    ],
    "train_on_batch fails in several processes",
)


def why_otherwise(name: str) -> str | None:
    """Returns why a test says nothing of an older version, if so."""
    return OTHERWISE.get(name) or OTHERWISE.get(name.partition("[")[0])
