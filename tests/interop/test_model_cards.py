"""The code in model cards, run with the real transformers and timm on a server on this machine."""

import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import keras_vit
from tests.fixtures.checkpoint_files import random_model
from tests.fixtures.checkpoints.hub_server import serving, use
from tests.fixtures.checkpoints.hub_uploads import MEMBER
from tests.fixtures.contract import to_numpy
from tests.fixtures.models import TOWERS
from tests.fixtures.reference import case_model

CASE = "hf_vit_imagenet_mean_std"
# The environment that `make test-interop` makes for transformers before version 5.
OLD_PYTHON = pathlib.Path(f"{sys.prefix}-transformers4", "bin", "python")
# The second block of a card, after that for Keras, with an image.
CODE = """
import importlib.util
import sys
import numpy as np
from PIL import Image
if importlib.util.find_spec("torch"):
    from tests.fixtures.peers.torchvision_alone import find_torchvision
    find_torchvision()
code, image, outputs = sys.argv[1:]
names = {"image": Image.open(image)}
exec(code, names)
found = names["outputs"]
kinds = ("logits", "image_embeds", "pooler_output", "last_hidden_state")
kind = next((kind for kind in kinds if getattr(found, kind, None) is not None), None)
found = found if kind is None else getattr(found, kind)
found = found[:, 0] if kind == "last_hidden_state" else found
np.save(outputs, found.detach() if hasattr(found, "detach") else found)
"""


OTHERS = {
    "huggingface_dinov2_with_registers": {**TOWERS["dinov2_giant"], "epsilon": 1e-6},
    "huggingface_clip": TOWERS["clip"] | {"num_classes": 0},
    "huggingface_siglip2": TOWERS["siglip"] | {"num_classes": 0},
    "huggingface_vit_mae": {"num_classes": 0},
}


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
@pytest.mark.parametrize("to", ["huggingface", "huggingface_tf", "timm", *OTHERS])
def test_the_code_of_a_card(to, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", MEMBER)
    model = random_model(OTHERS[to]) if to in OTHERS else case_model(CASE)
    pixels = np.random.default_rng(0).integers(0, 256, (*model.input_shape[1:3], 3), "uint8")
    Image.fromarray(pixels).save(tmp_path / "image.png")
    keras_vit.save_checkpoint(model, tmp_path / to, to)
    with serving(tmp_path / "repositories") as hub:
        use(hub, monkeypatch, tmp_path / "cache")
        keras_vit.checkpoints.push_to_hub(tmp_path / to, "org/vit")
        card = (tmp_path / to / "README.md").read_text()
        ours, theirs = re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL)
        names = {"images": pixels[None]}
        exec(ours, names)
        paths = [str(tmp_path / name) for name in ("image.png", "outputs.npy")]
        python = OLD_PYTHON if to == "huggingface_tf" else sys.executable
        settings = {"HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "home")}
        subprocess.run(
            [python, "-c", CODE, theirs, *paths],
            env={**os.environ, **settings, "TF_USE_LEGACY_KERAS": "1"},
            check=True,
        )
    expected = to_numpy(model(keras_vit.preprocess(pixels[None])))
    # timm's files do not record the epsilon.
    np.testing.assert_allclose(to_numpy(names["outputs"]), expected, rtol=0, atol=2e-5)
    np.testing.assert_allclose(np.load(paths[1]), to_numpy(names["outputs"]), rtol=0, atol=5e-6)
