"""Fine-tune a ViT on a folder of images, one folder per class, with plain Keras.

    python examples/01_fine_tune_on_your_images.py photos

`photos/` has the folders `cat/`, `dog/` ..., or `train/`, `validation/` and `test/` with these.
"""

import sys

import keras

import keras_vit


def main(folder, workdir="fine_tuned", image_size=64, epochs=3):
    size = (image_size, image_size)
    train = keras_vit.data.load(
        f"folder:{folder}", "train", size, 16, training=True, min_crop_area=0.5, flip=True
    )
    validation = keras_vit.data.load(f"folder:{folder}", "validation", size, 16)
    test = keras_vit.data.load(f"folder:{folder}", "test", size, 16)

    # Or `keras_vit.replace_head(keras.models.load_model("trained.keras"), num_classes)`.
    model = keras_vit.ViT_Ti16(num_classes=len(train.class_names), image_size=image_size)
    model.compile(
        optimizer=keras.optimizers.SGD(0.01, momentum=0.9, global_clipnorm=1.0),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(train, validation_data=validation, epochs=epochs, shuffle=False)
    print("Test accuracy:", model.evaluate(test, return_dict=True)["accuracy"])
    model.save(f"{workdir}.keras")
    keras_vit.export(model, f"{workdir}_serving", class_names=train.class_names)


if __name__ == "__main__":
    main(*sys.argv[1:])
