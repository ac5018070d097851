"""Train a detector of KerasHub on a backbone; needs `pip install keras-hub scikit-learn`."""

import keras
import keras_hub
import numpy as np
from sklearn.datasets import load_sample_images

import keras_vit

SIZE = 128
COLORS = {"red": (220, 30, 30), "blue": (30, 60, 220)}


def photographs_with_boxes(count, seed=0):
    """Return parts of photographs, each with a colored rectangle, and its corners and class."""
    rng = np.random.default_rng(seed)
    images, boxes, labels = [], [], []
    for number in range(count):
        photograph = load_sample_images().images[number % 2]
        top, left = (rng.integers(0, side - SIZE) for side in photograph.shape[:2])
        image = photograph[top : top + SIZE, left : left + SIZE].copy()
        height, width = rng.integers(32, 64, 2)
        y, x = rng.integers(0, SIZE - 64, 2)
        label = int(rng.integers(len(COLORS)))
        image[y : y + height, x : x + width] = list(COLORS.values())[label]
        images.append(image)
        boxes.append([[y, x, y + height, x + width]])
        labels.append([label])
    targets = {"boxes": np.array(boxes, "float32"), "labels": np.array(labels, "float32")}
    return keras_vit.preprocess(np.array(images)), targets


vit = keras_vit.vision_transformer(
    patch_size=16, embedding_dim=64, depth=2, num_heads=2, mlp_dim=128, image_size=SIZE
)
maps = keras_vit.backbone(vit, levels=("P3", "P4", "P5"), channels=64)
pyramid = keras_hub.models.RetinaNetBackbone(
    maps, min_level=3, max_level=5, use_p5=True, image_shape=(SIZE, SIZE, 3)
)
detector = keras_hub.models.RetinaNetObjectDetector(pyramid, num_classes=len(COLORS))
detector.compile(
    optimizer=keras.optimizers.AdamW(1e-3),
    box_loss=keras.losses.Huber(reduction="sum"),
    classification_loss=keras.losses.BinaryFocalCrossentropy(from_logits=True, reduction="sum"),
)
# KerasHub makes a dataset of the arrays, for which Keras warns of `shuffle=True`.
history = detector.fit(*photographs_with_boxes(32), batch_size=8, epochs=3, shuffle=False)
losses = history.history["loss"]
print(f"The loss fell from {losses[0]:.1f} to {losses[-1]:.1f}")
