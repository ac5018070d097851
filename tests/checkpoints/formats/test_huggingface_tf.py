"""`tf_model.h5` of transformers before version 5, read and written."""

import json
import shutil

import h5py
import numpy as np
import pytest
from keras import ops
from safetensors.numpy import save_file

from keras_vit.checkpoints import from_checkpoint, inspect_checkpoint, save_checkpoint
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


def test_a_file_of_any_name_is_read_with_its_configuration(folder):
    renamed = (folder / "tf_model.h5").rename(folder / "other.h5")
    assert_outputs(from_checkpoint(renamed, format="huggingface"))
    assert inspect_checkpoint(renamed).format == "huggingface_tf"


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
    with pytest.raises(ValueError, match="files of the index do not hold each array once"):
        from_checkpoint(folder)
    path.unlink()
    save_file(arrays, folder / "model.safetensors", {"format": "tf"})
    assert inspect_checkpoint(folder).format == "huggingface_tf"
    assert_outputs(from_checkpoint(folder))


def test_the_file_that_was_read(tmp_path):
    save_checkpoint(case_model(CASE), tmp_path, "huggingface_tf")
    written, attributes, layers = arrays_and_attributes(tmp_path / "tf_model.h5")
    arrays, their_attributes, _ = arrays_and_attributes(REFERENCE / CASE / "tf_model.h5")
    assert sorted(written) == sorted(arrays)
    assert all(np.array_equal(written[name], arrays[name]) for name in arrays)
    assert layers == ["classifier", "vit"]
    assert attributes == {layer: their_attributes[layer] for layer in layers}
    assert_outputs(from_checkpoint(tmp_path))


def test_a_part_of_a_file_is_refused(folder):
    path = folder / "tf_model.h5"
    path.write_bytes(path.read_bytes()[:100_000])
    with pytest.raises(ValueError, match="`path` must be a complete file of arrays"):
        from_checkpoint(folder)


def test_files_of_other_models_of_tensorflow_are_refused(folder, tmp_path):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "vit_mae"}))
    with pytest.raises(ValueError, match="`model_type` .* must be 'vit'"):
        from_checkpoint(folder)
    arrays, _, _ = arrays_and_attributes(folder / "tf_model.h5")
    arrays["decoder/decoder_pred/bias:0"] = np.zeros(3, "float32")
    save_file(arrays, tmp_path / "mae.safetensors")
    with pytest.raises(ValueError, match="of a known layout"):
        from_checkpoint(tmp_path / "mae.safetensors")
