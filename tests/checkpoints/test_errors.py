"""Files that are not what they claim: one line that says so, and the model as it was."""

import json
import struct
import zipfile

import numpy as np
import pytest

from keras_vit.checkpoints import from_checkpoint, load_checkpoint
from tests.fixtures.checkpoint_files import case_arrays, unchanged, write
from tests.fixtures.reference import REFERENCE, case_model, case_path

CASE = "a_vit_token"
QUERY = "Transformer/encoderblock_1/MultiHeadDotProductAttention_1/query/kernel"


def html_page(path):
    path = path / "page.npz"
    path.write_text("<!DOCTYPE html><html><title>404</title></html>")
    return path


def truncated(path):
    path = path / "truncated.npz"
    path.write_bytes(case_path(CASE).read_bytes()[:100_000])
    return path


def corrupted(path):
    """A byte of an array's values is another: only the checksum tells."""
    contents = bytearray(case_path(CASE).read_bytes())
    contents[100_000] ^= 1
    path = path / "corrupted.npz"
    path.write_bytes(contents)
    return path


def pickled(path):
    arrays = case_arrays(CASE)
    arrays["head/bias"] = np.array([{"a": 1}], dtype=object)
    return write(path / "pickled.npz", arrays)


def other_architecture(path):
    return write(path / "other.npz", case_arrays("i3_bv_map_learn"))


def no_vision_transformer(path):
    return write(path / "bert.npz", {"word_embeddings": np.ones((4, 4), "float32")})


def one_missing(path):
    arrays = case_arrays(CASE)
    del arrays[QUERY]
    return write(path / "missing.npz", arrays)


def one_too_many(path):
    return write(path / "extra.npz", {**case_arrays(CASE), "head/scale": np.ones(3, "float32")})


def wrong_shape(path):
    arrays = case_arrays(CASE)
    arrays["Transformer/encoderblock_0/MlpBlock_3/Dense_1/kernel"] = np.ones((96, 47), "float32")
    return write(path / "shape.npz", arrays)


def table_of_rank_2(path):
    arrays = case_arrays(CASE)
    name = "Transformer/posembed_input/pos_embedding"
    arrays[name] = arrays[name][0]
    return write(path / "rank.npz", arrays)


def heads_of_rank_2(path):
    arrays = case_arrays(CASE)
    return write(path / "rank.npz", {**arrays, QUERY: arrays[QUERY].reshape(48, 48)})


def config_of(path, **changes):
    """The directory of transformers with another configuration."""
    config = json.loads((REFERENCE / "hf_classifier" / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, **changes}))
    (path / "model.safetensors").write_bytes(
        (REFERENCE / "hf_classifier" / "model.safetensors").read_bytes()
    )
    return path


def config_with_a_text(path):
    return config_of(path, num_attention_heads="four")


def config_with_other_heads(path):
    return config_of(path, num_attention_heads=5)


def config_with_no_heads(path):
    return config_of(path, num_attention_heads=0)


def config_of_a_larger_model(path):
    return config_of(path, hidden_size=1024, num_hidden_layers=24)


def config_with_a_negative_epsilon(path):
    return config_of(path, layer_norm_eps=-1)


def config_of_another_model(path):
    return config_of(path, model_type="dinov2")


def config_with_another_activation(path):
    return config_of(path, hidden_act="mish")


def config_that_is_no_json(path):
    (config_of(path) / "config.json").write_text("{")
    return path


def not_finite(path):
    arrays = case_arrays(CASE)
    arrays[QUERY][0, 0, 0] = np.nan
    return write(path / "nan.npz", arrays)


def too_large_for_float32(path):
    return write(path / "large.npz", {**case_arrays(CASE), "head/bias": np.full(10, 1e300)})


def integers(path):
    arrays = case_arrays(CASE)
    arrays["head/bias"] = np.arange(10)
    return write(path / "integers.npz", arrays)


def two_spellings(path):
    arrays = case_arrays(CASE)
    old = "Transformer/encoderblock_0/LayerNorm_2/scale"
    return write(path / "two.npz", {**arrays, old.replace("_2/", "_1/"): arrays[old]})


def two_tables(path):
    arrays = case_arrays(CASE)
    table = arrays["Transformer/posembed_input/pos_embedding"]
    return write(path / "two.npz", {**arrays, "pos_embedding": table})


def inside_and_outside(path):
    arrays = {f"params/{name}": array for name, array in case_arrays(CASE).items()}
    arrays["head/kernel"] = arrays["params/head/kernel"] * 3
    return write(path / "two.npz", arrays)


def table_with_a_batch(path):
    arrays = case_arrays(CASE)
    name = "Transformer/posembed_input/pos_embedding"
    arrays[name] = np.concatenate([arrays[name]] * 2)
    return write(path / "batch.npz", arrays)


def lying_npz_header(path):
    """An array that claims to be larger than the file."""
    header = {"descr": "<f4", "fortran_order": False, "shape": (3 * 10**11,)}
    with zipfile.ZipFile(path / "lying.npz", "w") as archive:
        for name, array in case_arrays(CASE).items():
            with archive.open(f"{name}.npy", "w") as file:
                if name == "head/bias":
                    np.lib.format.write_array_header_1_0(file, header)
                else:
                    np.lib.format.write_array(file, array)
    return path / "lying.npz"


def number_for_blocks(path):
    arrays = {**case_arrays(CASE), "Transformer/encoderblock/x": np.float32(1)}
    return write(path / "number.npz", arrays)


def twice_in_shards(path):
    """Two files of an index hold the same tensors."""
    contents = (REFERENCE / "hf_classifier" / "model.safetensors").read_bytes()
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    for name in names:
        (path / name).write_bytes(contents)
    index = {"weight_map": {"classifier.bias": names[0], "classifier.weight": names[1]}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return path


def index_with_a_folder(path):
    """Without the folder, the name is that of another file."""
    contents = (REFERENCE / "hf_classifier" / "model.safetensors").read_bytes()
    (path / "a.safetensors").write_bytes(contents)
    index = {"weight_map": {"classifier.bias": "step_9/a.safetensors"}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return path


def index_with_an_array_of_no_file(path):
    config_of(path)
    (path / "model.safetensors").rename(path / "a.safetensors")
    index = {"weight_map": {"classifier.bias": "a.safetensors", "other.bias": "a.safetensors"}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return path


def index_without_a_map(path):
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": [1]}))
    return path


def empty(path):
    path = path / "empty.npz"
    path.touch()
    return path


def lying_header(path):
    """The header promises more bytes than there are."""
    contents = (REFERENCE / "timm_token.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", contents[:8])
    header = json.loads(contents[8 : 8 + length])
    header["head.weight"]["data_offsets"][1] += 4096
    header = json.dumps(header).encode()
    path = path / "lying.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + contents[8 + length :])
    return path


def huge_header(path):
    path = path / "huge.safetensors"
    path.write_bytes(struct.pack("<Q", 2**60) + b"{}")
    return path


def html_safetensors(path):
    path = path / "page.safetensors"
    path.write_text("<html>moved</html>")
    return path


def lone_array(path):
    path = path / "lone.npz"
    with path.open("wb") as file:
        np.save(file, np.ones(3))
    return path


def torch_pickle(path):
    path = path / "pytorch_model.bin"
    path.write_bytes(b"\x80\x02}q\x00.")
    return path


def distilled(path):
    import safetensors.numpy

    arrays = safetensors.numpy.load_file(REFERENCE / "timm_token.safetensors")
    arrays["dist_token"] = arrays["cls_token"]
    path = path / "deit.safetensors"
    safetensors.numpy.save_file(arrays, path)
    return path


def no_file(path):
    return path / "nothing.npz"


def empty_directory(path):
    return path


def shard_missing(path):
    index = {"weight_map": {"classifier.bias": "model-00001-of-00002.safetensors"}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return path


FILES = [
    (html_page, "an HTML or XML page"),
    (truncated, "the beginning of an archive: the download was cut short"),
    (corrupted, "whose array .* is damaged"),
    (pickled, "'head/bias' is a pickled object, which is never read"),
    (
        no_vision_transformer,
        "or a ResNet of a known layout.* such as word_embeddings",
    ),
    (one_missing, f"with missing: '{QUERY}'"),
    (one_too_many, "with unused: 'head/scale'"),
    (wrong_shape, r"misshapen: 'Transformer/.*Dense_1/kernel' is \(96, 47\), not \(96, 48\)"),
    (table_of_rank_2, r"is \(17, 48\), not \(1, 17, 48\)|`\(1, positions, width\)`.* \(17, 48\)"),
    (heads_of_rank_2, r"misshapen: '.*query/kernel' is \(48, 48\), not \(48, 4, 12\)"),
    (config_with_a_text, "`num_heads` must be an integer of at least 1.*'four'"),
    (config_with_other_heads, "`num_heads` must be (a positive divisor|that of the file's)"),
    (config_with_no_heads, "`num_heads` must be an integer of at least 1.*num_heads=0"),
    (config_of_a_larger_model, "`hidden_size` of the file's config.json must be .* 48. Received"),
    (config_with_a_negative_epsilon, "`layer_norm_eps` .* between 0 and 1.*layer_norm_eps=-1"),
    (config_of_another_model, "`model_type` of the file's config.json must be 'vit'"),
    (config_with_another_activation, "`hidden_act` of the file's config.json must be 'gelu' or"),
    (config_that_is_no_json, "config.json' must hold JSON"),
    (not_finite, f"whose array '{QUERY}' has NaN or infinity"),
    (too_large_for_float32, "whose array 'head/bias' has NaN or infinity"),
    (integers, "'head/bias' must hold floating-point numbers. Received: dtype=int64"),
    (empty, "an empty file"),
    (two_spellings, "'.*LayerNorm_2/scale' and '.*LayerNorm_1/scale', which are the same"),
    (two_tables, "posembed_input/pos_embedding' and 'pos_embedding', which are the same"),
    (inside_and_outside, "'params/head/kernel' and 'head/kernel', which are the same"),
    (table_with_a_batch, r"is \(2, 17, 48\)"),
    (lying_npz_header, r"'head/bias' is \(300000000000,\) by its header, and has 128 bytes"),
    (number_for_blocks, "unused: 'Transformer/encoderblock/x'"),
    (twice_in_shards, "'classifier.bias' is in two files"),
    (index_with_a_folder, "must name files next to it. Received: .*'step_9/a.safetensors'"),
    (index_with_an_array_of_no_file, "each array of its index. Received: .* without 'other.bias'"),
    (index_without_a_map, "must say in `weight_map` which file"),
    (lone_array, "must be a complete .npz archive"),
    (lying_header, "must be a complete .safetensors file.*lying.safetensors"),
    (huge_header, "must be a complete .safetensors file.*huge.safetensors"),
    (html_safetensors, "an HTML or XML page"),
    (torch_pickle, "save the weights as .safetensors"),
    (distilled, "without DeiT's distillation token"),
    (no_file, "must be an existing file"),
    (empty_directory, "must be a directory with model.safetensors"),
    (shard_missing, "without model-00001-of-00002.safetensors"),
]


@pytest.mark.parametrize(
    ("make", "message"), FILES, ids=lambda value: getattr(value, "__name__", "")
)
def test_error(make, message, tmp_path):
    path = make(tmp_path)
    model = case_model(CASE)
    before = model.get_weights()
    with pytest.raises(ValueError, match=message) as load_error:
        load_checkpoint(model, path)
    assert unchanged(model, before)
    with pytest.raises(ValueError, match=message) as build_error:
        from_checkpoint(path)
    for error in (load_error, build_error):
        assert len(str(error.value).splitlines()) == 1
        assert "Received: " in str(error.value)


def test_another_architecture(tmp_path):
    model = case_model(CASE)
    before = model.get_weights()
    with pytest.raises(
        ValueError, match="unused: .*MAPHead_0/.* and [0-9]+ more.*missing: "
    ) as error:
        load_checkpoint(model, other_architecture(tmp_path))
    assert unchanged(model, before)
    assert len(str(error.value)) < 1500


@pytest.mark.parametrize("changes", [{"num_classes": 3}, {"image_size": 48}, {"num_classes": 0}])
def test_loading_adapts_nothing(changes):
    model = case_model(CASE, **changes)
    before = model.get_weights()
    with pytest.raises(ValueError, match="must hold exactly the weights|for the model's grid of"):
        load_checkpoint(model, case_path(CASE))
    assert unchanged(model, before)


def test_nearest_names_are_given(tmp_path):
    arrays = case_arrays(CASE)
    arrays["Transformer/encoder_norm/scales"] = arrays.pop("Transformer/encoder_norm/scale")
    path = write(tmp_path / "renamed.npz", arrays)
    with pytest.raises(ValueError, match="'Transformer/encoder_norm/scale' .near: '.*/scales'"):
        from_checkpoint(path)


@pytest.mark.parametrize("case", ["a_vit_token", "hf_classifier"])
@pytest.mark.parametrize("format", ["big_vision", "timm", "keras"])
def test_another_format_than_asked_for(case, format):
    if (case, format) == ("a_vit_token", "big_vision"):
        # The spellings of both are read as either's.
        assert from_checkpoint(case_path(case), format=format).count_params() == 67594
        return
    with pytest.raises(ValueError, match=f"`path` must be of format '{format}'"):
        from_checkpoint(case_path(case), format=format)


@pytest.mark.parametrize(
    ("case", "options", "message"),
    [
        ("a_vit_token", {"format": "flax"}, "`format` must be one of .*format='flax'"),
        ("a_vit_token", {"num_heads": 8}, "`num_heads` must be that of the file.*num_heads=8"),
        ("hf_classifier", {"num_heads": 8}, "`num_heads` must be that of the file.*num_heads=8"),
        ("a_vit_token", {"num_heads": 0}, "`num_heads` must be .*num_heads=0"),
        ("a_vit_token", {"num_classes": -1}, "`num_classes` must be .*num_classes=-1"),
        ("a_vit_token", {"image_size": 30}, r"`image_size` must be a multiple of \(8, 8\)"),
        ("a_vit_token", {"image_size": "big"}, "`image_size` must be .*'big'"),
        ("timm_token.safetensors", {}, "`num_heads` must be given"),
        ("timm_token.safetensors", {"num_heads": 5}, "must be a positive divisor of the width 48"),
        (3, {}, "`path` must be a name or a path. Received: path=3"),
        ("", {}, "`path` must be a name or a path"),
    ],
)
def test_wrong_argument(case, options, message):
    is_file = isinstance(case, str) and case.endswith(".safetensors")
    path = REFERENCE / case if is_file else case_path(case) if case and case != 3 else case
    with pytest.raises(ValueError, match=message):
        from_checkpoint(path, **options)
