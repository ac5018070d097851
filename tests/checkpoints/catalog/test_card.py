"""Model cards."""

import json

import pytest
import yaml

import keras_vit
from keras_vit.checkpoints import model_card
from tests.fixtures.checkpoints.hub_server import serving, use
from tests.fixtures.reference import case_model

CASE = "hf_vit_imagenet_mean_std"


@pytest.fixture
def directory(tmp_path):
    model = case_model(CASE)
    model.class_names = ("tabby cat", "a_*b*", "<i>bird</i>")
    keras_vit.save_checkpoint(model, tmp_path / "written", "huggingface")
    return tmp_path / "written"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    with serving(tmp_path / "repositories") as server:
        use(server, monkeypatch, tmp_path / "cache")
        yield server


def front_matter(card):
    """What a parser of YAML finds, and the text after it."""
    _, metadata, text = str(card).split("---\n", 2)
    return yaml.safe_load(metadata), text


def facts_of(card):
    lines = [line for line in str(card.text).splitlines() if line.startswith("- ")]
    return dict(line.removeprefix("- ").split(": ", 1) for line in lines)


def test_the_facts_are_those_of_the_files(directory):
    card = model_card(directory, "org/pets")
    preprocessor = json.loads((directory / "preprocessor_config.json").read_text())
    facts = facts_of(card)
    assert facts["Classes"] == "3 (`tabby cat`, `a_*b*`, `<i>bird</i>`)"
    assert facts["Parameters"] == f"{case_model(CASE).count_params():,}"
    height, width = preprocessor["size"]["height"], preprocessor["size"]["width"]
    assert facts["Images"].startswith(f"{height} x {width} pixels")
    assert (preprocessor["image_mean"], preprocessor["image_std"]) == (
        [0.485, 0.456, 0.406],
        [0.229, 0.224, 0.225],
    )
    assert facts["Preprocessing"].startswith("interpolation=bicubic, antialias=True")
    assert "mean=(0.485, 0.456, 0.406), deviation=(0.229, 0.224, 0.225)" in facts["Preprocessing"]
    assert "Weights" not in facts
    assert "Accuracy" not in facts
    metadata, text = front_matter(card)
    assert metadata == {
        "library_name": "transformers",
        "pipeline_tag": "image-classification",
        "tags": ["keras_vit", "vision", "vision-transformer"],
    }
    assert text.startswith("\n# pets\n\nVision Transformer for image classification")
    assert 'keras_vit.from_checkpoint("hf://org/pets")' in text


@pytest.mark.slow
def test_without_a_head(tmp_path):
    model = keras_vit.ViT_Ti16(num_classes=0, image_size=32)
    for to in ("huggingface", "huggingface_tf"):
        keras_vit.save_checkpoint(model, tmp_path / to, to)
        card = model_card(tmp_path / to, "org/vit@v2")
        assert card.data.pipeline_tag == "image-feature-extraction"
        assert facts_of(card)["Classes"].startswith("none")


def test_a_head_of_zeros(tmp_path):
    model = keras_vit.ViT_Ti16(num_classes=12, image_size=32)
    model.class_names = [f"class {index}" for index in range(12)]
    keras_vit.save_checkpoint(model, tmp_path / "timm", "timm")
    card = model_card(tmp_path / "timm", "org/vit@v2")
    assert "\nViT_Ti16 for image classification" in card.text
    assert facts_of(card)["Classes"].endswith(
        "`class 9`, ...); the head is zero and has to be trained"
    )
    assert '"hf://org/vit@v2"' in card.text


@pytest.mark.parametrize(
    ("source", "origin"),
    [
        (
            "hf://google/vit@v1/model.safetensors",
            "[google/vit](https://huggingface.co/google/vit) at v1",
        ),
        (
            "ViT_B16/imagenet21k",
            "`ViT_B16/imagenet21k`, gs://vit_models/imagenet21k/ViT-B_16.npz",
        ),
        (
            "Ti_16-i1k-300ep-lr_0.001-aug_none-wd_0.1-do_0.0-sd_0.0",
            "gs://vit_models/augreg/Ti_16-i1k-300ep-lr_0.001-aug_none-wd_0.1-do_0.0-sd_0.0.npz",
        ),
        ("https://me:secret@host.example/vit.npz?key=secret", "https://host.example/vit.npz"),
        ("/home/me/vit.npz", None),
        (None, None),
    ],
)
@pytest.mark.parametrize("finetuned", [False, True])
def test_origin(source, origin, finetuned, directory, hub):
    card = model_card(directory, "org/pets", source=source, finetuned=finetuned)
    how = "fine-tuned from" if finetuned else "converted from"
    assert facts_of(card).get("Weights") == (origin and f"{how} {origin}")
    is_on_hub = origin is not None and source.startswith("hf:")
    base = "google/vit" if is_on_hub else None
    assert card.data.base_model == base
    assert "secret" not in str(card)
    assert "/home" not in str(card)


@pytest.mark.parametrize(
    ("text", "arguments", "expected"),
    [
        ("---\nlicense: apache-2.0\n---\n", {}, {"license": "apache-2.0"}),
        ("---\nlicense: apache-2.0\n---\n", {"license": "mit"}, {"license": "mit"}),
        ("---\nlicense: apache-2.0\n---\n", {"finetuned": True}, {}),
        (
            "---\nlicense: other\nlicense_name: own\nlicense_link: LICENSE\n---\n",
            {},
            {"license": "other", "license_name": "own", "license_link": "LICENSE"},
        ),
        ("# Without metadata\n", {}, {}),
        ("---\n- a list\n---\n", {}, {}),
    ],
)
def test_license(text, arguments, expected, directory, hub):
    folder = hub.folder / "org" / "base"
    folder.mkdir(parents=True)
    (folder / "README.md").write_text(text)
    card = model_card(directory, "org/pets", source="hf://org/base", **arguments)
    metadata, _ = front_matter(card)
    assert {name: metadata[name] for name in metadata if "license" in name} == expected


def test_license_without_the_hub(directory, hub):
    card = model_card(directory, "org/pets", source="hf://org/absent")
    assert card.data.license is None


def test_accuracy(directory):
    card = model_card(directory, "org/pets", accuracy="93 % on oxford_iiit_pet")
    assert facts_of(card)["Accuracy"] == "93 % on oxford_iiit_pet"
