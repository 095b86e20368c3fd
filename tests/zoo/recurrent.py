"""The recurrent family: layers, cells, wrappers and states."""

import keras
from keras import layers, ops

from .data import BATCH, floats
from .registry import Case, case, learns

STEPS = (5, 4)


@keras.saving.register_keras_serializable("zoo")
class MinimalCell(layers.Layer):
    """A cell of one's own."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = self.state_size = self.output_size = units

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], self.units))
        self.recurrent = self.add_weight(
            shape=(self.units, self.units), initializer="orthogonal"
        )

    def call(self, x, states):
        (before,) = states
        y = ops.tanh(ops.matmul(x, self.kernel) + ops.matmul(before, self.recurrent))
        return y, [y]

    def get_config(self):
        return {**super().get_config(), "units": self.units}


def _over(layer, *width):
    x = keras.Input(STEPS)
    return learns(keras.Model(x, layer(x)), floats(*STEPS), floats(*width))


def _stateful(layer, *width):
    x = keras.Input(batch_shape=(BATCH, *STEPS))
    model = keras.Model(x, layer(x))
    model(floats(*STEPS))
    # torch: the state is overwritten before the gradient has read it.
    learn = keras.backend.backend() != "torch"
    return Case(model, floats(*STEPS), floats(*width), train=learn)


@case("rnn/lstm")
def _():
    return _over(layers.LSTM(3), 3)


@case("rnn/gru")
def _():
    return _over(layers.GRU(3, return_sequences=True), 5, 3)


@case("rnn/gru_reset_before")
def _():
    return _over(layers.GRU(3, reset_after=False, use_bias=False), 3)


@case("rnn/simple")
def _():
    return _over(layers.SimpleRNN(3, activation="relu"), 3)


@case("rnn/dropout")
def _():
    return _over(layers.LSTM(3, dropout=0.3, recurrent_dropout=0.3, seed=1), 3)


@case("rnn/backwards_and_unrolled")
def _():
    return _over(layers.GRU(3, go_backwards=True, unroll=True), 3)


@case("rnn/implementation_1")
def _():
    return _over(layers.RNN(layers.LSTMCell(3, implementation=1)), 3)


@case("rnn/stateful_lstm")
def _():
    return _stateful(layers.LSTM(3, stateful=True), 3)


@case("rnn/stateful_gru_sequences")
def _():
    return _stateful(layers.GRU(2, stateful=True, return_sequences=True), 5, 2)


@case("rnn/stateful_stack")
def _():
    cells = [layers.LSTMCell(3), layers.GRUCell(2)]
    return _stateful(layers.RNN(cells, stateful=True), 2)


@case("rnn/stateful_bidirectional")
def _():
    return _stateful(layers.Bidirectional(layers.LSTM(2, stateful=True)), 4)


@case("rnn/return_state")
def _():
    x = keras.Input(STEPS)
    y, hidden, carry = layers.LSTM(3, return_state=True)(x)
    model = keras.Model(x, [y, hidden, carry])
    return learns(model, floats(*STEPS), [floats(3)] * 3)


@case("rnn/initial_state")
def _():
    x, start = keras.Input(STEPS), keras.Input((3,))
    y = layers.GRU(3)(x, initial_state=start)
    model = keras.Model([x, start], y)
    return learns(model, [floats(*STEPS), floats(3)], floats(3))


@case("rnn/initial_state_from_another")
def _():
    x = keras.Input(STEPS)
    _, *state = layers.LSTM(3, return_state=True)(x)
    y = layers.LSTM(3, return_sequences=True)(x, initial_state=state)
    return learns(keras.Model(x, y), floats(*STEPS), floats(5, 3))


@case("rnn/encoder_decoder")
def _():
    source, target = keras.Input(STEPS), keras.Input((3, 2))
    _, *state = layers.LSTM(3, return_state=True)(source)
    decoder = layers.LSTM(3, return_sequences=True, return_state=True)
    y, *_ = decoder(target, initial_state=state)
    model = keras.Model([source, target], layers.Dense(2)(y))
    return learns(model, [floats(*STEPS), floats(3, 2)], floats(3, 2))


@case("rnn/stacked_cells")
def _():
    cells = layers.StackedRNNCells([layers.LSTMCell(3), layers.GRUCell(2)])
    return _over(layers.RNN(cells), 2)


@case("rnn/list_of_cells")
def _():
    cells = [layers.SimpleRNNCell(3), MinimalCell(2)]
    return _over(layers.RNN(cells, return_sequences=True), 5, 2)


@case("rnn/own_cell")
def _():
    return _over(layers.RNN(MinimalCell(3)), 3)


@case("rnn/own_cell_bidirectional")
def _():
    # Bidirectional makes both of its layers anew from a configuration.
    return _over(layers.Bidirectional(layers.RNN(MinimalCell(3))), 6)


@case("rnn/one_cell_stacked_twice")
def _():
    cell = layers.GRUCell(4)
    return _over(layers.RNN([cell, cell]), 4)


for _mode, _width in (("concat", 6), ("sum", 3), ("mul", 3), ("ave", 3)):
    case(f"rnn/bidirectional_{_mode}")(
        lambda mode=_mode, width=_width: _over(
            layers.Bidirectional(layers.LSTM(3), merge_mode=mode), width
        )
    )


@case("rnn/bidirectional_unmerged")
def _():
    x = keras.Input(STEPS)
    y = layers.Bidirectional(layers.LSTM(3), merge_mode=None)(x)
    return learns(keras.Model(x, y), floats(*STEPS), [floats(3)] * 2)


@case("rnn/bidirectional_two_layers")
def _():
    layer = layers.Bidirectional(
        layers.LSTM(3), backward_layer=layers.GRU(2, go_backwards=True)
    )
    return _over(layer, 5)


@case("rnn/bidirectional_return_state")
def _():
    x = keras.Input(STEPS)
    y = layers.Bidirectional(layers.GRU(3, return_state=True))(x)
    return Case(keras.Model(x, y), floats(*STEPS))


@case("rnn/time_distributed")
def _():
    return _over(layers.TimeDistributed(layers.Dense(3)), 5, 3)


@case("rnn/time_distributed_twice")
def _():
    x = keras.Input((3, 5, 4))
    wrap = layers.TimeDistributed
    y = wrap(wrap(layers.Dense(2)))(x)
    return learns(keras.Model(x, y), floats(3, 5, 4), floats(3, 5, 2))


@case("rnn/time_distributed_conv")
def _():
    x = keras.Input((2, 5, 5, 1))
    y = layers.TimeDistributed(layers.Conv2D(2, 3))(x)
    return learns(keras.Model(x, y), floats(2, 5, 5, 1), floats(2, 3, 3, 2))


@case("rnn/bidirectional_in_time_distributed")
def _():
    x = keras.Input((2, *STEPS))
    y = layers.TimeDistributed(layers.Bidirectional(layers.GRU(2)))(x)
    return learns(keras.Model(x, y), floats(2, *STEPS), floats(2, 4))


@case("rnn/conv_lstm_1d")
def _():
    x = keras.Input((3, 6, 2))
    y = layers.ConvLSTM1D(2, 3)(x)
    return learns(keras.Model(x, y), floats(3, 6, 2), floats(4, 2))


@case("rnn/conv_lstm_2d")
def _():
    x = keras.Input((3, 5, 5, 1))
    y = layers.ConvLSTM2D(2, 3, padding="same", return_sequences=True)(x)
    return learns(keras.Model(x, y), floats(3, 5, 5, 1), floats(3, 5, 5, 2))


@case("rnn/unknown_length")
def _():
    x = keras.Input((None, 4))
    y = layers.LSTM(3)(x)
    return learns(keras.Model(x, y), floats(6, 4), floats(3))


@case("rnn/cell_called_in_the_graph")
def _():
    cell = layers.LSTMCell(4)
    x = keras.Input((4,))
    y, states = cell(x, [x, x])
    y, _ = cell(y, states)
    return learns(keras.Model(x, y), floats(4), floats(4))
