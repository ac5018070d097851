"""`tf_model.h5` of transformers before version 5, read and written."""

import json
import re
import shutil

import h5py
import numpy as np
import pytest
from keras import ops
from safetensors.numpy import save_file

from keras_vit.checkpoints import from_checkpoint, inspect_checkpoint, save_checkpoint
from tests.fixtures.checkpoint_files import arrays_of, random_model
from tests.fixtures.reference import REFERENCE, assert_logits, case_model, case_outputs
from tests.fixtures.tiny import images

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


def test_files_of_other_models_of_tensorflow_are_refused(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "vit_msn"}))
    with pytest.raises(ValueError, match="`model_type` .* must be 'vit'"):
        from_checkpoint(folder)


def in_tensorflow(name, array):
    """Name and array in TensorFlow, given those in PyTorch."""
    *modules, kind = name.split(".")
    is_norm = "layernorm" in modules[-1]
    kinds = {"weight": "gamma", "bias": "beta"} if is_norm else {"weight": "kernel"}
    if kinds.get(kind) == "kernel":
        array = array.transpose(*(2, 3, 1, 0) if array.ndim == 4 else (1, 0))
    name = re.sub(r"layer/(\d+)", r"layer_._\1", "/".join([*modules, kinds.get(kind, kind)]))
    # The encoder of ViT-MAE has no prefix in PyTorch.
    prefix = "vit/" if name.startswith(("embeddings/", "encoder/", "layernorm/")) else ""
    return f"{prefix}{name}:0", np.ascontiguousarray(array)


DEIT = {"activation": "gelu", "epsilon": 1e-12}
# Layout in PyTorch, options of the model, and arrays that are not part of it.
OTHER_MODELS = {
    "with teacher": ("huggingface_deit", {**DEIT, "distillation_token": True}, {}),
    "without teacher": ("huggingface_deit", {**DEIT, "num_registers": 1}, {}),
    "mae": (
        "huggingface_vit_mae",
        {**DEIT, "num_classes": 0},
        {"decoder/decoder_layers.0/output/dense/bias:0": np.ones(3, "float32")},
    ),
}


@pytest.mark.parametrize("name", OTHER_MODELS)
def test_deit_and_mae(name, tmp_path):
    format, options, others = OTHER_MODELS[name]
    model = random_model(options)
    save_checkpoint(model, tmp_path, format)
    path = tmp_path / "model.safetensors"
    arrays = dict(in_tensorflow(*item) for item in arrays_of(path).items())
    save_file({**arrays, **others}, path, {"format": "tf"})
    again = from_checkpoint(path)
    assert again.layout == format.replace("huggingface", "huggingface_tf")
    batch = images(2, *model.input_shape[1:])
    outputs = (ops.convert_to_numpy(m(batch)) for m in (again, model))
    np.testing.assert_allclose(*outputs, rtol=0, atol=1e-6)
