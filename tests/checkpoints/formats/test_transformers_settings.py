"""Settings of a `config.json` of transformers besides the architecture."""

import json

import pytest

from keras_vit.checkpoints import from_checkpoint, save_checkpoint
from tests.fixtures.checkpoint_files import config_next_to


@pytest.mark.parametrize("case", ["hf_classifier", "hf_tf_h5_classifier"])
def test_a_model_of_several_labels_stays_one(case, tmp_path, caplog):
    config = {"problem_type": "multi_label_classification"}
    file = config_next_to(case, tmp_path, config)
    model = from_checkpoint(file)
    count = model.output_shape[-1]
    assert model.thresholds == (0.5,) * count
    assert from_checkpoint(file, num_classes=count).thresholds is None
    for format in ("huggingface", "huggingface_tf"):
        save_checkpoint(model, tmp_path / format, format)
        assert json.loads((tmp_path / format / "config.json").read_text()).items() > config.items()
        assert from_checkpoint(tmp_path / format).thresholds == (0.5,) * count
    model.thresholds = (0.4, *model.thresholds[1:])
    save_checkpoint(model, tmp_path / "other", "huggingface")
    assert "does not record `model.thresholds`: they are read as 0.5" in caplog.text


def test_weights_alone_are_read_as_their_configuration_says(tmp_path):
    config = {"problem_type": "multi_label_classification"}
    folder = config_next_to("hf_tf_h5_classifier", tmp_path, config)
    model = from_checkpoint(folder)
    save_checkpoint(model, folder / "again.h5", "huggingface_tf")
    assert from_checkpoint(folder / "again.h5").thresholds == model.thresholds
    model.thresholds = None
    with pytest.raises(ValueError, match="next to the config.json of a multi-label model"):
        save_checkpoint(model, folder / "other.h5", "huggingface_tf")
    assert not (folder / "other.h5").exists()


@pytest.mark.parametrize("name", ["gelu_python", "gelu_fast"])
def test_other_names_of_the_gelu(name, tmp_path):
    model = from_checkpoint(config_next_to("hf_classifier", tmp_path, {"hidden_act": name}))
    assert model.options.activation == {"gelu_fast": "gelu_tanh"}.get(name, "gelu")
