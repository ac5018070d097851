"""The class of a checkpoint layout; the table `FORMATS` contains one object per layout."""

import dataclasses
from collections.abc import Callable

from keras_vit.checkpoints.weight_map import POSITIONS, Row
from keras_vit.core.image_spec import WHOLE_IMAGE, ImageSpec


@dataclasses.dataclass(frozen=True)
class Format:
    """One layout of checkpoint files: how it is recognized, read and written.

    A layout that exists only in memory has only `name`, `title` and `rows`. A layout that is read
    and not written has no `suffix`, or it has an `open` function. The argument `shape_of(path)` of
    functions returns the shape of the array for the variable with this path, or `None`.

    Args:
        name: value of `format`.
        rows: the weight map.
        title: heading of the weight map in the documentation; `None` to leave it out.
        suffix: suffix of the files that are written, a key of `archives.WRITERS`, or of the files
            that `open` reads.
        find: `find(shapes)` returns the `Naming` of the arrays of a file, given their shapes by
            name, or `None` for a file of another layout.
        describe: `describe(shape_of, config, num_heads)` returns the options of
            `vision_transformer` or `resnet`, without `image_size`. `config` is the contents of the
            `config.json`, and `num_heads` the argument of `from_checkpoint`.
        file_name: name of the file of weights in a directory, by default `model` and the suffix.
        family: another value of `format`, which stands for all layouts of one project, or `None`.
            For this value, a model is written in the first of these layouts that can describe it.
        model_types: values of `model_type` in the `config.json` of this layout. Layouts with the
            `model_type` of a file are tried first.
        models: the project's names of the models whose files are read and written, for the
            documentation.
        read_only_models: names of the models whose files are only read. Parts besides the image
            tower or the encoder are ignored.
        open: `open(path)` returns the archive of a file that no class of `archives` reads.
        restore: `restore(checkpoint, model, has_new_head)` sets attributes of a model that the file
            records, after the weights are loaded.
        prefix_rows: `prefix_rows(num_tokens, shape_of)` returns the possible numbers of rows in the
            position embedding for the tokens before the patches (class token, registers).
        configured_size: `configured_size(config)` returns the recorded image size, or `None`.
        class_names: `class_names(config)` returns the list of the recorded names of classes, or
            `None`.
        interpolation: how the project resizes position embeddings.
        config_options: options that only the `config.json` records; without the file, they are
            assumed.
        config_files: names of the JSON files next to the weights.
        has_normalizations: whether published weights differ in the normalization of images. Then a
            warning is logged for a file that does not record its normalization.
        image_spec: how images are prepared for a file that does not record it.
        configure: `configure(options, arrays, class_names, image_spec)` returns the contents of
            `config_files` by file name. `arrays` are the arrays of the file by name.
        multi_label: entries of the `config.json` that mark a multi-label model; empty if the
            layout cannot record that a model is multi-label.
        has_resnets: whether the project has ResNets without a Transformer.
        refused: `refused(options)` lists the names of the options that the project's models cannot
            have.
        has_patch_bias: `has_patch_bias(options)` returns whether the project's patch projection has
            a bias in a model of these options.
        position_embeddings: kinds of position embeddings that the layout can describe. If
            `"sincos2d"` is not among them, sines and cosines are written as learned positions.
        store_positions: `store_positions(values, num_tokens)` converts the position embedding in
            `values`, the variables by path, to its form in the file, and returns all values.
            `num_tokens` is the number of tokens before the patches.
        constants: `constants(options)` returns, by name, arrays that the project's models contain
            but do not use.
        written_name: `written_name(name, options)` returns the name in the file for a name of the
            weight map.
    """

    name: str
    rows: tuple[Row, ...]
    title: str | None = None
    suffix: str | None = None
    find: Callable | None = None
    describe: Callable | None = None
    file_name: str | None = None
    family: str | None = None
    model_types: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    read_only_models: tuple[str, ...] = ()
    open: Callable | None = None
    restore: Callable = lambda checkpoint, model, has_new_head: None
    prefix_rows: Callable = lambda num_tokens, shape_of: (num_tokens,)
    configured_size: Callable = lambda config: config.get("image_size")
    class_names: Callable = lambda config: None
    interpolation: str = "bilinear"
    config_options: tuple[str, ...] = ()
    config_files: tuple[str, ...] = ()
    has_normalizations: bool = False
    image_spec: ImageSpec = WHOLE_IMAGE
    configure: Callable = lambda options, arrays, class_names, image_spec: {}
    multi_label: dict = dataclasses.field(default_factory=dict)
    has_resnets: bool = False
    refused: Callable = lambda options: []
    has_patch_bias: Callable = lambda options: True
    position_embeddings: tuple[str, ...] = ("learned",)
    store_positions: Callable = lambda values, num_tokens: values
    constants: Callable = lambda options: {}
    written_name: Callable = lambda name, options: name

    @property
    def name_in_directory(self):
        """Name of the file of weights in a directory."""
        return self.file_name or f"model{self.suffix}"

    def read_only(self, name, find, read_only_models, **changes):
        """Return a layout for the same variables; it is read and not written by default."""
        cleared = {"title": None, "suffix": None, "models": ()}
        given = {"name": name, "find": find, "read_only_models": read_only_models}
        return dataclasses.replace(self, **{**cleared, **given, **changes})

    @property
    def is_written(self):
        """Whether `save_checkpoint` writes such files."""
        return self.suffix is not None and self.open is None


def without_zero_rows(values, num_tokens):
    """Remove position rows of tokens before the patches if they are zero; see `store_positions`."""
    table = values[POSITIONS]
    return values if table[:, :num_tokens].any() else {**values, POSITIONS: table[:, num_tokens:]}
