"""What a row of the table of checkpoint layouts says."""

import dataclasses
from collections.abc import Callable

from keras_vit.checkpoints.weight_map import POSITIONS, Row


@dataclasses.dataclass(frozen=True)
class Format:
    """A row of the table: one layout of checkpoints.

    A layout that is only in memory has `name`, `title` and `rows`; one that is only read has no
    `suffix`, or opens its files itself. `shape_of` is a function from the path of a variable to the
    shape of the array that holds its values, or to `None`.

    Args:
        name: value of `format`.
        family: another value of `format`, which means all layouts of one project; `None` for the
            name alone. The first of them that can describe a model is written.
        model_types: values of `model_type` in the `config.json` of this layout. Layouts with the
            `model_type` of a file are tried first.
        rows: the weight map.
        title: heading of the weight map in the documentation; `None` to leave it out.
        models: the project's names of the models whose files are read and written, for the
            documentation.
        read_only_models: those of which a part is read, the image tower or the encoder.
        suffix: suffix of the files that are written, one of `archives.WRITERS`, or of those that
            `open` reads.
        file_name: name of the file of weights in a directory, by default `model` and the suffix.
        find: `find(shapes)` returns the arrays of a file, given their shapes by name, as a
            `Naming`, or `None` for a file of another layout.
        describe: `describe(shape_of, config, num_heads)` returns the options of
            `vision_transformer` or `resnet`, without `image_size`. `config` is the contents of the
            `config.json`, and `num_heads` the argument of `from_checkpoint`.
        open: `open(path)` returns the archive of a file that no module of `archives` reads.
        restore: `restore(checkpoint, model, has_new_head)` restores what a file records besides
            the weights, after they are loaded.
        prefix_rows: `prefix_rows(num_tokens, shape_of)` returns the possible numbers of rows that
            the tokens before the patches (class token, registers) have in the position embedding.
        configured_size: `configured_size(config)` returns the image size that is recorded, or
            `None`.
        class_names: `class_names(config)` returns the names of the classes that are recorded, a
            list, or `None`.
        interpolation: how the project resizes position embeddings.
        config_options: options that are only recorded in the `config.json`; without the file, they
            are assumed.
        config_files: names of the JSON files next to the weights.
        has_normalizations: whether published weights have different normalizations of images, so
            that a file without a record of it gives a warning.
        configure: `configure(options, arrays, class_names, image_spec)` returns the
            contents of `config_files` by file name; the arguments are those of `save_checkpoint`,
            the arrays of the file by name, and the `ImageSpec` of the model.
        multi_label: entries of the `config.json` of a multi-label model; empty if the format has
            none.
        has_resnets: whether the project has ResNets without a Transformer.
        refused: `refused(options)` lists the names of the options by which a Vision Transformer is
            none of the project's.
        has_patch_bias: `has_patch_bias(options)` returns whether the project's patch projection has
            a bias in such a model.
        position_embeddings: kinds of position embeddings that the layout can describe. Unless the
            sines and cosines are among them, they are written as learned ones.
        store_positions: `store_positions(values, num_tokens)` returns the values of the variables
            by path, with the position embedding as it is stored.
        constants: `constants(options)` returns arrays by name that the project's models have in
            addition, and do not use.
        spell: `spell(name, options)` returns the name in the file of an array of the weight map.
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
    configure: Callable = lambda options, arrays, class_names, image_spec: {}
    multi_label: dict = dataclasses.field(default_factory=dict)
    has_resnets: bool = False
    refused: Callable = lambda options: []
    has_patch_bias: Callable = lambda options: True
    position_embeddings: tuple[str, ...] = ("learned",)
    store_positions: Callable = lambda values, num_tokens: values
    constants: Callable = lambda options: {}
    spell: Callable = lambda name, options: name

    @property
    def name_in_directory(self):
        """Name of the file of weights in a directory."""
        return self.file_name or f"model{self.suffix}"

    @property
    def is_written(self):
        """Whether `save_checkpoint` writes such files."""
        return self.suffix is not None and self.open is None


def without_zero_rows(values, num_tokens):
    """Leave out the rows of the tokens before the patches, where they are zero; a default of timm.

    See `Format.store_positions`.
    """
    table = values[POSITIONS]
    return values if table[:, :num_tokens].any() else {**values, POSITIONS: table[:, num_tokens:]}
