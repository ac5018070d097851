"""`tf_model.h5` of transformers before version 5, read and written."""

import json
import shutil

import h5py
import numpy as np
import pytest
from keras import ops
from safetensors.numpy import save_file

from keras_vit.checkpoints import from_checkpoint, inspect_checkpoint, save_checkpoint
from tests.fixtures.checkpoint_files import random_model, unchanged
from tests.fixtures.reference import REFERENCE, assert_logits, case_model, case_outputs

CASE = "hf_tf_h5_classifier"
# The first number that TensorFlow gives to names of the same kind is none.
WRITTEN_BY = "tf_vi_t_for_image_classification"


def arrays_and_attributes(path):
    arrays, attributes = {}, {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset):
            arrays[name] = item[()]
        elif "weight_names" in item.attrs:
            attributes[name] = sorted(item.attrs["weight_names"])

    with h5py.File(path) as file:
        file.visititems(visit)
        return arrays, attributes, sorted(file.attrs["layer_names"])


@pytest.fixture
def folder(tmp_path):
    """A copy of the directory that transformers wrote."""
    return shutil.copytree(REFERENCE / CASE, tmp_path / "model")


def assert_outputs(model):
    reference = case_outputs(CASE)
    assert_logits(ops.convert_to_numpy(model(reference["images"])), reference["logits"])


def test_a_file_with_its_configuration(folder):
    assert_outputs(from_checkpoint(folder / "tf_model.h5"))
    renamed = folder / "tf_model.h5"
    assert_outputs(from_checkpoint(renamed.rename(folder / "other.h5"), format="huggingface"))


def test_the_name_of_the_model_varies(folder):
    with h5py.File(folder / "tf_model.h5", "a") as file:
        for layer in ("vit", "classifier"):
            file.move(f"{layer}/{WRITTEN_BY}", f"{layer}/{WRITTEN_BY}_4")
    assert_outputs(from_checkpoint(folder))


def test_safetensors_of_tensorflow(folder):
    """Their names are those of the HDF5 file without its groups."""
    arrays, _, _ = arrays_and_attributes(folder / "tf_model.h5")
    arrays = {name.split("/", 2)[2]: array for name, array in arrays.items()}
    assert {"vit/layernorm/gamma:0", "classifier/bias:0"} <= arrays.keys()
    (folder / "tf_model.h5").unlink()
    names = sorted(arrays)
    parts = {"a.safetensors": names[:9], "b.safetensors": names[9:]}
    for file, held in parts.items():
        save_file({name: arrays[name] for name in held}, folder / file, {"format": "tf"})
    # TensorFlow's index has the name of the model before those of the arrays.
    index = {f"{WRITTEN_BY}_2/{name}": file for file, held in parts.items() for name in held}
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": index}))
    assert_outputs(from_checkpoint(folder))
    path.write_text(json.dumps({"weight_map": {**index, "model/other:0": "a.safetensors"}}))
    with pytest.raises(ValueError, match="do not hold each array of the index once"):
        from_checkpoint(folder)
    path.unlink()
    save_file(arrays, folder / "model.safetensors", {"format": "tf"})
    assert inspect_checkpoint(folder).format == "huggingface_tf"
    assert_outputs(from_checkpoint(folder))


def test_what_is_not_read_is_named(folder):
    swin = folder / "swin.h5"
    with h5py.File(swin, "w") as file:
        file["swin/tf_swin_model/swin/layernorm/gamma:0"] = np.ones(3)
    with pytest.raises(ValueError, match="of a known layout.*model_type='vit'"):
        from_checkpoint(swin)


def test_without_the_number_of_heads(folder):
    (folder / "config.json").unlink()
    with pytest.raises(ValueError, match="`num_heads` must be given"):
        from_checkpoint(folder)
    assert_outputs(from_checkpoint(folder, num_heads=4, epsilon=1e-12))


def test_the_file_that_was_read(tmp_path):
    save_checkpoint(case_model(CASE), tmp_path, "huggingface_tf")
    written, attributes, layers = arrays_and_attributes(tmp_path / "tf_model.h5")
    arrays, their_attributes, _ = arrays_and_attributes(REFERENCE / CASE / "tf_model.h5")
    assert sorted(written) == sorted(arrays)
    assert all(np.array_equal(written[name], arrays[name]) for name in arrays)
    assert layers == ["classifier", "vit"]
    assert attributes == {layer: their_attributes[layer] for layer in layers}
    assert_outputs(from_checkpoint(tmp_path))


def test_a_model_with_a_pooler(tmp_path):
    model = random_model({"num_classes": 0, "representation_size": 16, "activation": "gelu"})
    save_checkpoint(model, tmp_path, "huggingface_tf")
    arrays, _, layers = arrays_and_attributes(tmp_path / "tf_model.h5")
    assert layers == ["vit"]
    assert "vit/tf_vi_t_model/vit/pooler/dense/kernel:0" in arrays
    assert unchanged(from_checkpoint(tmp_path), model.get_weights())


def test_weights_alone_by_their_suffix(tmp_path):
    path = tmp_path / "weights.h5"
    with pytest.raises(ValueError, match="Received: path=.*model.weights.h5"):
        save_checkpoint(case_model(CASE), tmp_path / "model.weights.h5", "huggingface")
    save_checkpoint(case_model(CASE), path, "huggingface")
    assert [file.name for file in tmp_path.iterdir()] == ["weights.h5"]
    assert inspect_checkpoint(path, num_heads=4).format == "huggingface_tf"


def test_other_weights_that_would_be_read_instead(tmp_path):
    save_checkpoint(case_model(CASE), tmp_path, "huggingface")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ValueError, match="without model.safetensors, which is read instead"):
        save_checkpoint(case_model(CASE), tmp_path, "huggingface_tf")
    assert sorted(tmp_path.iterdir()) == before


def test_damaged_files(folder):
    path = folder / "tf_model.h5"
    for contents in (path.read_bytes()[:100_000], b"<html>404</html>"):
        path.write_bytes(contents)
        with pytest.raises(ValueError, match="`path` must be a complete file of arrays. .*tf_mode"):
            from_checkpoint(folder)


def test_another_model_in_hdf5(folder):
    with h5py.File(folder / "tf_model.h5", "w") as file:
        file["dense/dense/kernel:0"] = np.zeros((2, 3), "float32")
    with pytest.raises(ValueError, match="of a known layout.*dense/dense/kernel:0"):
        from_checkpoint(folder)


def test_pickled_weights_alone(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02")
    with pytest.raises(ValueError, match="must be a directory with model.safetensors"):
        from_checkpoint(tmp_path)


def test_another_kind_of_model_in_safetensors(tmp_path):
    names = {"deit/encoder/layer_._0/intermediate/dense/kernel:0": np.zeros((2, 2), "float32")}
    save_file(names, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="of a known layout"):
        from_checkpoint(tmp_path)


def test_of_two_models_that_of_transformers_is_read(folder):
    save_checkpoint(from_checkpoint(folder), folder / "new", format="huggingface")
    shutil.copy(folder / "tf_model.h5", folder / "new")
    assert_outputs(from_checkpoint(folder / "new"))


def test_images_must_be_square(tmp_path):
    model = random_model({"image_size": (16, 32)})
    with pytest.raises(
        ValueError, match=r"huggingface_tf files can describe.*image_size=\(16, 32\)"
    ):
        save_checkpoint(model, tmp_path / "model", format="huggingface_tf")
    assert not (tmp_path / "model").exists()


def test_biases_of_queries_are_needed(tmp_path):
    model = random_model({"qkv_bias": False})
    with pytest.raises(ValueError, match="huggingface_tf files can describe.*qkv_bias=False"):
        save_checkpoint(model, tmp_path / "model", format="huggingface_tf")
    assert not (tmp_path / "model").exists()


def test_other_models_of_tensorflow_are_named(folder, tmp_path):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "vit_mae"}))
    with pytest.raises(
        ValueError, match="`model_type` .* must be 'vit'. Received: model_type='vit_mae'"
    ):
        from_checkpoint(folder)
    arrays, _, _ = arrays_and_attributes(folder / "tf_model.h5")
    arrays["decoder/decoder_pred/bias:0"] = np.zeros(3, "float32")
    save_file(arrays, tmp_path / "mae.safetensors")
    with pytest.raises(ValueError, match="of a known layout"):
        from_checkpoint(tmp_path / "mae.safetensors")


def test_arrays_of_other_names_are_listed(folder):
    arrays, _, _ = arrays_and_attributes(folder / "tf_model.h5")
    (folder / "tf_model.h5").unlink()
    arrays = {name.replace("/query/", "/qry/"): array for name, array in arrays.items()}
    save_file(arrays, folder / "model.safetensors")
    with pytest.raises(ValueError, match="unused: .*/qry/.*missing: .*/query/"):
        from_checkpoint(folder)
