"""Settings of a `config.json` of transformers besides the architecture."""

import json
import pathlib

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
    caplog.clear()
    for format in ("huggingface", "huggingface_tf"):
        save_checkpoint(model, tmp_path / format, format)
        assert json.loads((tmp_path / format / "config.json").read_text()).items() > config.items()
        assert from_checkpoint(tmp_path / format).thresholds == (0.5,) * count
    assert "thresholds" not in caplog.text
    model.thresholds = (0.4, *model.thresholds[1:])
    save_checkpoint(model, tmp_path / "other", "huggingface")
    assert "does not record `model.thresholds`: they are read as 0.5" in caplog.text


def test_weights_alone_are_read_as_their_configuration_says(tmp_path, caplog):
    config = {"problem_type": "multi_label_classification"}
    folder = config_next_to("hf_tf_h5_classifier", tmp_path, config)
    model = from_checkpoint(folder)
    save_checkpoint(model, folder / "again.h5", "huggingface_tf")
    assert "thresholds" not in caplog.text
    assert from_checkpoint(folder / "again.h5").thresholds == model.thresholds
    model.thresholds = None
    with pytest.raises(ValueError, match="next to the config.json of a multi-label model"):
        save_checkpoint(model, folder / "other.h5", "huggingface_tf")
    assert not (folder / "other.h5").exists()


@pytest.mark.parametrize("name", ["gelu_python", "gelu_fast"])
def test_other_names_of_the_gelu(name, tmp_path):
    model = from_checkpoint(config_next_to("hf_classifier", tmp_path, {"hidden_act": name}))
    assert model.options.activation == {"gelu_fast": "gelu_tanh"}.get(name, "gelu")


def test_the_pooler_of_a_model_without_one_may_be_any(tmp_path):
    from_checkpoint(config_next_to("hf_classifier", tmp_path, {"pooler_act": "gelu"}))


def test_class_names_with_wrong_numbers_are_told(tmp_path, caplog):
    classes = from_checkpoint(config_next_to("hf_classifier", tmp_path, {})).output_shape[-1]
    names = {str(number + 1): f"c{number}" for number in range(classes)}
    file = config_next_to("hf_classifier", tmp_path, {"id2label": names})
    assert from_checkpoint(file).class_names is None
    assert "must be strings of one line" in caplog.text


def test_an_error_names_the_directory_and_that_its_configuration_is_missing(tmp_path, monkeypatch):
    """A short name may be a part of any text."""
    monkeypatch.chdir(tmp_path)
    file = config_next_to("hf_classifier", pathlib.Path("m"), {"num_attention_heads": 5})
    with pytest.raises(ValueError, match=r"num_heads=5 \(while reading 'm'\)$"):
        from_checkpoint(file)
    (file / "config.json").unlink()
    message = r"\(while reading 'm'\)$"
    with pytest.raises(ValueError, match=message):
        from_checkpoint(file)


def test_another_activation_than_that_of_the_file_is_logged(tmp_path, caplog):
    caplog.set_level("INFO", "keras_vit")
    file = config_next_to("hf_classifier", tmp_path, {})
    from_checkpoint(file, activation="gelu")
    assert "replaces" not in caplog.text
    from_checkpoint(file, activation="relu")
    assert "activation='relu' replaces 'gelu'" in caplog.text
