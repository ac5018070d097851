"""Classify with frozen features and scikit-learn, without training the ViT.

python examples/03_features.py
"""

import numpy as np
from sklearn.linear_model import LogisticRegression

import keras_vit


def split_of_digits(split):
    batches = keras_vit.data.load("digits", split, (32, 32), 64).as_numpy_iterator()
    images, labels = zip(*batches, strict=True)
    return np.concatenate(images), np.concatenate(labels)


def main():
    # Random features are enough for digits; `weights="path/to/model.keras"` gives trained ones.
    model = keras_vit.ViT_Ti16(num_classes=0, image_size=32)
    train_images, train_labels = split_of_digits("train")
    test_images, test_labels = split_of_digits("test")

    classifier = LogisticRegression(max_iter=1000)
    classifier.fit(keras_vit.features(model, train_images), train_labels)
    accuracy = classifier.score(keras_vit.features(model, test_images), test_labels)
    print(f"Test accuracy of a linear classifier on the representation: {accuracy:.1%}")

    maps = keras_vit.features(model, test_images[:1], layers=["block_5"], as_maps=True)
    print("Tokens of block 5 as a map:", maps["block_5"].shape)
    return accuracy


if __name__ == "__main__":
    main()
