"""What a model has before it is replicated, it has afterwards."""

import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import layers

import regraft

from .devices import some_devices
from .models import BUILDERS

ALL = pytest.mark.parametrize("name", BUILDERS)


@pytest.fixture
def trained():
    build, x, y = BUILDERS["cnn"]
    model = build()
    model.fit(x, y, batch_size=10, verbose=0)
    return model, x, y


@ALL
def test_there_and_back_is_an_exact_copy(name):
    build, x, y = BUILDERS[name]
    model = build()
    model.fit(x, y, batch_size=10, verbose=0)
    many = regraft.replicate(model, some_devices(2))
    assert isinstance(many, regraft.Replicated)
    assert isinstance(many, type(model))
    back = regraft.gather(many)
    assert type(back) is type(model)
    regraft.verify(model, back).raise_if_different()


def test_names_are_the_originals(trained):
    model, _, _ = trained
    many = regraft.replicate(model, some_devices(2))
    assert many.name == model.name
    assert many.output_names == model.output_names
    assert [layer.name for layer in many.layers] == [x.name for x in model.layers]
    assert [v.path for v in many.variables] == [v.path for v in model.variables]
    assert many.metrics_names == model.metrics_names


def test_the_template_is_live(trained, tmp_path):
    model, x, y = trained
    many = regraft.replicate(model, some_devices(2))
    template = many.template
    assert type(template) is type(model)
    assert template is many.template
    many.fit(x, y, batch_size=10, verbose=0)
    template.save(tmp_path / "template.keras")
    many.save(tmp_path / "many.keras")
    for file in ("template.keras", "many.keras"):
        loaded = keras.models.load_model(tmp_path / file)
        now = regraft.gather(many)
        for left, right in zip(loaded.variables, now.variables, strict=True):
            np.testing.assert_array_equal(left.numpy(), right.numpy())
        pairs = zip(loaded.optimizer.variables, now.optimizer.variables, strict=True)
        for left, right in pairs:
            np.testing.assert_array_equal(left.numpy(), right.numpy())
    assert any(
        (a.numpy() != b.numpy()).any()
        for a, b in zip(now.weights, model.weights, strict=True)
    )


def test_a_checkpoint_in_the_middle_of_training_has_the_current_weights(
    trained, tmp_path
):
    model, x, y = trained
    many = regraft.replicate(model, some_devices(2))
    path = str(tmp_path / "{epoch}.keras")
    checkpoint = keras.callbacks.ModelCheckpoint(path)
    many.fit(x, y, batch_size=10, epochs=2, verbose=0, callbacks=[checkpoint])
    first, second = (
        keras.models.load_model(tmp_path / f"{n}.keras").get_weights() for n in (1, 2)
    )
    assert any((a != b).any() for a, b in zip(first, second, strict=True))
    for left, right in zip(second, regraft.gather(many).get_weights(), strict=True):
        np.testing.assert_array_equal(left, right)


def test_a_save_that_fails_leaves_the_old_file_and_nothing_else(trained, tmp_path):
    model, _, _ = trained
    many = regraft.replicate(model, some_devices(2))
    many.save(tmp_path / "m.keras")
    before = (tmp_path / "m.keras").read_bytes()
    many.template.layers[-1].get_config = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        many.save(tmp_path / "m.keras")
    assert (tmp_path / "m.keras").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["m.keras"]


def test_plain_keras_loads_the_file_without_regraft(trained, tmp_path):
    model, x, _ = trained
    many = regraft.replicate(model, some_devices(2))
    many.save(tmp_path / "many.keras")
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", model.predict(x, batch_size=30, verbose=0))
    code = (
        "import keras, numpy as np, sys\n"
        f"model = keras.models.load_model({str(tmp_path / 'many.keras')!r})\n"
        f"x, y = (np.load({str(tmp_path)!r} + f) for f in ('/x.npy', '/y.npy'))\n"
        "got = model.predict(x, batch_size=30, verbose=0)\n"
        "np.testing.assert_allclose(got, y, rtol=1e-5)\n"
        "assert 'regraft' not in sys.modules\n"
        "assert type(model).__name__ == 'Functional'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_state_of_an_optimizer_that_was_never_built():
    build, x, y = BUILDERS["sequential"]
    model = build()
    many = regraft.replicate(model, some_devices(2))
    many.fit(x, y, verbose=0)
    assert not model.optimizer.built
    assert regraft.gather(many).optimizer.iterations.numpy() == 1


def test_a_replicated_model_can_be_compiled_anew(trained):
    model, x, y = trained
    many = regraft.replicate(regraft.clone(model, compiled="drop"), some_devices(2))
    many.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    history = many.fit(x, y, batch_size=10, epochs=2, verbose=0).history
    assert history["loss"][1] < history["loss"][0]
    assert regraft.gather(many).optimizer.iterations.numpy() == 6


def test_a_replicated_model_can_be_replicated_and_cloned(trained):
    model, x, y = trained
    many = regraft.replicate(model, some_devices(2))
    again = regraft.replicate(many, some_devices(4))
    assert len(again.devices) == 4
    regraft.verify(model, regraft.gather(again)).raise_if_different()
    twin = regraft.clone(many)
    before = [w.numpy() for w in regraft.gather(many).weights]
    twin.fit(x, y, batch_size=10, verbose=0)
    after = [w.numpy() for w in regraft.gather(many).weights]
    assert all((a == b).all() for a, b in zip(before, after, strict=True))
    changed = [w.numpy() for w in regraft.gather(twin).weights]
    assert any((a != b).any() for a, b in zip(before, changed, strict=True))


def test_placement_says_where_every_variable_lies(trained):
    model, x, y = trained
    many = regraft.replicate(model, some_devices(2))
    many.fit(x, y, batch_size=10, verbose=0)
    placement = many.placement()
    paths = [row.path for row in placement.variables]
    assert paths == [v.path for v in [*model.variables, *model.optimizer.variables]]
    assert {d for row in placement.variables for d in row.devices} <= set(many.devices)
    assert placement.variables[0].bytes == 3 * 3 * 3 * 4 * 4
    text = str(placement)
    assert "conv/kernel" in text
    assert "3 x 3 x 3 x 4" in text
    assert many.devices[0] in text


def test_one_device_is_said_to_be_one():
    model = keras.Sequential([keras.Input((2,)), layers.Dense(2)], name="net")
    with pytest.warns(regraft.SingleDeviceWarning) as caught:
        many = regraft.replicate(model, some_devices(1))
    assert many.devices == ("cpu:0",)
    text = str(caught[0].message)
    assert "The model runs on one device (cpu:0)" in text
    assert "where: net" in text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"devices": 0}, "There are not 0 devices."),
        ({"devices": 99}, "There are not 99 devices."),
        ({"devices": ["gpu:7"]}, "There is no device 'gpu:7'."),
        ({"devices": []}, "Each replica needs a device of its own."),
        ({"merge": "tpu:0"}, "where: argument `merge`"),
        ({"relocate": "tpu:0"}, "where: argument `relocate`"),
    ],
)
def test_devices_that_are_not_there_are_refused(trained, arguments, text):
    with pytest.raises(regraft.UsageError) as error:
        regraft.replicate(trained[0], **arguments)
    assert text in str(error.value)
    assert "cpu:0" in str(error.value)


@pytest.mark.parametrize("devices", [True, 2.0])
def test_what_is_no_number_of_devices_is_refused(trained, devices):
    with pytest.raises(TypeError, match="must be a number or names of devices"):
        regraft.replicate(trained[0], devices)


@pytest.mark.filterwarnings("ignore::regraft.SingleDeviceWarning")
def test_a_number_of_numpy_is_a_number(trained):
    assert len(regraft.replicate(trained[0], np.int64(1)).devices) == 1


@pytest.mark.skipif(keras.backend.backend() == "torch", reason="torch allows it")
def test_a_device_named_twice_is_refused(trained):
    with pytest.raises(regraft.UsageError, match="Each replica needs a device of its"):
        regraft.replicate(trained[0], ["cpu:0", "cpu:0"])


def test_what_cannot_be_replicated_or_gathered_is_refused():
    with pytest.raises(TypeError, match="Only models can be replicated"):
        regraft.replicate(layers.Dense(2))
    with pytest.raises(regraft.UsageError, match="must be built before it is"):
        regraft.replicate(keras.Sequential([layers.Dense(2)]))
    with pytest.raises(TypeError, match="Only a replicated model can be gathered"):
        regraft.gather(keras.Sequential([keras.Input((2,))]))
