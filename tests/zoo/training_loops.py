"""Models with training logic of their own, and Functional subclasses."""

import keras
from keras import layers, ops

from .data import floats
from .registry import case, learns


def _wired(width=2):
    x = keras.Input((4,))
    return x, layers.Dense(width)(layers.Dense(4, activation="relu")(x))


class OwnComputeLoss(keras.Model):
    """Adds a term to whatever loss it is compiled with."""

    penalty = 0.1

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        return loss + self.penalty * ops.mean(ops.square(y_pred))


class OwnSteps(keras.Model):
    """Counts its steps and leaves the rest to Keras."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.steps = {"train": 0, "test": 0}

    def train_step(self, *args):
        self.steps["train"] += 1
        return super().train_step(*args)

    def test_step(self, *args):
        self.steps["test"] += 1
        return super().test_step(*args)


class OwnCompile(keras.Model):
    def compile(self, temperature=1.0, **kwargs):
        super().compile(**kwargs)
        self.temperature = temperature

    def call(self, inputs, training=None, mask=None):
        y = super().call(inputs, training=training, mask=mask)
        return y / getattr(self, "temperature", 1.0)


class OwnMetrics(keras.Model):
    """A tracker that is an attribute, shown through the property."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.tracker = keras.metrics.Mean(name="size")

    @property
    def metrics(self):
        return [*super().metrics, self.tracker]

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        self.tracker.update_state(ops.mean(ops.abs(y_pred)))
        return super().compute_metrics(x, y, y_pred, sample_weight)


class Distiller(keras.Model):
    """A student that is trained, a teacher that is not."""

    def __init__(self, student, teacher):
        super().__init__()
        self.student, self.teacher = student, teacher
        self.teacher.trainable = False
        self.term = keras.losses.KLDivergence()

    def call(self, x, training=None):
        return self.student(x, training=training)

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        taught = ops.softmax(self.teacher(x, training=False))
        loss = super().compute_loss(x, y, y_pred, sample_weight)
        return loss + self.term(taught, ops.softmax(y_pred))


class AutoEncoder(keras.Model):
    """Samples its code, and has a loss of its own."""

    def __init__(self, code=2):
        super().__init__()
        self.encoder = layers.Dense(2 * code)
        self.decoder = layers.Dense(4)
        self.seed = keras.random.SeedGenerator(7)

    def call(self, x, training=False):
        mean, deviation = ops.split(self.encoder(x), 2, axis=-1)
        if training:
            self.add_loss(1e-2 * ops.mean(ops.square(mean)))
            noise = keras.random.normal(ops.shape(mean), seed=self.seed)
            mean = mean + noise * ops.exp(deviation)
        return self.decoder(mean)


class Wide(keras.Model):
    """A Functional model by its constructor."""

    def __init__(self, width, **kwargs):
        x = keras.Input((4,), name="x")
        super().__init__(x, layers.Dense(width)(x), **kwargs)
        self.width = width

    def get_config(self):
        return {"width": self.width}


class WideWithParts(keras.Model):
    """A Functional model that keeps its layers and its constants."""

    def __init__(self, *widths):
        x = y = keras.Input((4,))
        blocks = [layers.Dense(width) for width in widths]
        for block in blocks:
            y = block(y)
        super().__init__(inputs=x, outputs=[y])
        self.blocks = blocks
        self.extra = layers.Dense(3)
        self.extra.build((None, widths[-1]))
        self.note = {"widths": widths}

    def call(self, inputs, training=None, mask=None):
        y = super().call(inputs, training=training, mask=mask)
        return self.extra(y)


class Wider(Wide):
    """A subclass of a Functional subclass."""

    def __init__(self):
        super().__init__(5, name="wider")
        self.factor = 2.0


def _compiled(model, width=2, **kwargs):
    model.compile(optimizer="sgd", loss="mse", **kwargs)
    model.train_on_batch(floats(4), floats(width))
    return learns(model, floats(4), floats(width))


@case("loops/compute_loss")
def _():
    return _compiled(OwnComputeLoss(*_wired()))


@case("loops/steps")
def _():
    model = OwnSteps(*_wired())
    return _compiled(model, run_eagerly=True)


@case("loops/compile")
def _():
    return _compiled(OwnCompile(*_wired()), temperature=2.0)


@case("loops/metrics")
def _():
    return _compiled(OwnMetrics(*_wired()), metrics=["mae"])


@case("loops/distiller")
def _():
    student, teacher = (keras.Model(*_wired()) for _ in range(2))
    return _compiled(Distiller(student, teacher))


@case("loops/sampling_auto_encoder")
def _():
    return _compiled(AutoEncoder(), 4)


@case("loops/train_step_jax", backends=("jax",))
def _():
    import jax

    class Stateless(keras.Model):
        def _loss(self, trainable, fixed, x, y):
            y_pred, fixed = self.stateless_call(trainable, fixed, x, training=True)
            return self.compute_loss(x, y, y_pred), fixed

        def train_step(self, state, data):
            trainable, fixed, optimizer, metrics = state
            x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
            gradient = jax.value_and_grad(self._loss, has_aux=True)
            (loss, fixed), grads = gradient(trainable, fixed, x, y)
            trainable, optimizer = self.optimizer.stateless_apply(
                optimizer, grads, trainable
            )
            return {"loss": loss}, (trainable, fixed, optimizer, metrics)

    return _compiled(Stateless(*_wired()))


@case("loops/train_step_torch", backends=("torch",))
def _():
    class Manual(keras.Model):
        def train_step(self, data):
            x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
            self.zero_grad()
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
            loss.backward()
            weights = self.trainable_weights
            self.optimizer.apply([w.value.grad for w in weights], weights)
            return {"loss": loss.detach()}

    return _compiled(Manual(*_wired()))


@case("loops/train_step_tensorflow", backends=("tensorflow",))
def _():
    import tensorflow as tf

    class Taped(keras.Model):
        def train_step(self, data):
            x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
            with tf.GradientTape() as tape:
                loss = self.compute_loss(y=y, y_pred=self(x, training=True))
            weights = self.trainable_weights
            self.optimizer.apply(tape.gradient(loss, weights), weights)
            return {"loss": loss}

    return _compiled(Taped(*_wired()))


@case("functional_subclass/constructor")
def _():
    return learns(Wide(3, name="wide"), floats(4), floats(3))


@case("functional_subclass/parts")
def _():
    return learns(WideWithParts(5, 2), floats(4), floats(3))


@case("functional_subclass/of_a_subclass")
def _():
    return learns(Wider(), floats(4), floats(5))


@case("functional_subclass/nested")
def _():
    x = keras.Input((4,))
    y = layers.Dense(2)(Wide(3)(x))
    return learns(keras.Model(x, y), floats(4), floats(2))


@case("functional_subclass/extra_arguments")
def _():
    class Scored(keras.Model):
        """Keras's own signature, and one argument more."""

        def __init__(self, inputs, outputs, score, **kwargs):
            super().__init__(inputs, outputs, **kwargs)
            self.score = score

    return learns(Scored(*_wired(), score=[1, 2]), floats(4), floats(2))
