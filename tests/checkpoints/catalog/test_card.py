"""Model cards."""

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
    card = model_card(directory, "org/pets", accuracy="93 % on oxford_iiit_pet")
    facts = facts_of(card)
    assert facts["Classes"] == "3 (`tabby cat`, `a_*b*`, `<i>bird</i>`)"
    assert facts["Parameters"] == f"{case_model(CASE).count_params():,}"
    assert "mean=(0.485, 0.456, 0.406), deviation=(0.229, 0.224, 0.225)" in facts["Preprocessing"]
    assert facts["Accuracy"] == "93 % on oxford_iiit_pet"
    assert "Weights" not in facts
    metadata, text = front_matter(card)
    assert metadata == {
        "library_name": "transformers",
        "pipeline_tag": "image-classification",
        "tags": ["keras_vit", "vision", "vision-transformer"],
    }
    assert 'keras_vit.from_checkpoint("hf://org/pets")' in text


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
        ("https://me:secret@host.example/vit.npz?key=secret", "https://host.example/vit.npz"),
        ("/home/me/vit.npz", None),
    ],
)
def test_origin(source, origin, directory, hub):
    card = model_card(directory, "org/pets", source=source)
    assert facts_of(card).get("Weights") == (origin and f"converted from {origin}")
    is_on_hub = origin is not None and source.startswith("hf:")
    base = "google/vit" if is_on_hub else None
    assert card.data.base_model == base
    assert "secret" not in str(card)
    assert "/home" not in str(card)


@pytest.mark.parametrize(
    ("text", "arguments", "expected"),
    [
        ("---\nlicense: apache-2.0\n---\n", {}, {"license": "apache-2.0"}),
        ("---\nlicense: apache-2.0\n---\n", {"finetuned": True}, {}),
        (
            "---\nlicense: other\nlicense_name: own\nlicense_link: LICENSE\n---\n",
            {},
            {"license": "other", "license_name": "own", "license_link": "LICENSE"},
        ),
        ("# Without metadata\n", {}, {}),
        # The repository is not on the Hub.
        (None, {}, {}),
    ],
)
def test_license(text, arguments, expected, directory, hub):
    if text is not None:
        folder = hub.folder / "org" / "base"
        folder.mkdir(parents=True)
        (folder / "README.md").write_text(text)
    card = model_card(directory, "org/pets", source="hf://org/base", **arguments)
    metadata, _ = front_matter(card)
    assert {name: metadata[name] for name in metadata if "license" in name} == expected
