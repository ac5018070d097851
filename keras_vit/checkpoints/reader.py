"""A checkpoint file: the model that it describes, whether it fits one, its values one by one."""

import contextlib

import numpy as np
from keras import ops

from keras_vit.checkpoints.architecture import logger
from keras_vit.checkpoints.archives import open_archive
from keras_vit.checkpoints.formats import CONFIGURED, KERAS, POSITIONS, recognise
from keras_vit.checkpoints.grids import fit_arguments, stored_image_size
from keras_vit.checkpoints.matching import HEAD_LAYERS, listed, mismatches
from keras_vit.checkpoints.positions import fit_positions
from keras_vit.checkpoints.transforms import TRANSFORMS
from keras_vit.checkpoints.weight_map import entries, template_of
from keras_vit.core.arguments import check_integer
from keras_vit.layers.convolution import NUM_GROUPS
from keras_vit.models.describe import describe
from keras_vit.models.options import is_resnet
from keras_vit.models.surgery import token_grid

# Options that no file tells of which the first block or unit is missing.
FIRST_BLOCK_TELLS = ("depth", "num_heads", "mlp_dim", "stages")


@contextlib.contextmanager
def open_checkpoint(path, format=None):
    """Opens a file and recognises its format.

    Args:
        path: a `pathlib.Path`.
        format: as in `from_checkpoint`.

    Returns:
        A context that gives a `Checkpoint`.

    Raises:
        ValueError: if the file is not read here, or is of no known or another format.
    """
    archive = open_archive(path)
    try:
        yield Checkpoint(archive, *recognise(archive, format))
    finally:
        archive.close()


class Checkpoint:
    """An open file of a known format.

    Attributes:
        path: of the file.
        format: its `Format`.
        naming: its arrays under the format's names.
        archive: its arrays, and the configuration that came with them.
    """

    def __init__(self, archive, format, naming):
        self.path = archive.path
        self.format = format
        self.naming = naming
        self.archive = archive
        self._finite = set()
        self._told_zero_head = False
        self._sources = {target: row.source for row in format.rows for target in row.targets}

    @property
    def dtypes(self):
        """Names of the dtypes that the model's arrays are stored in."""
        stored = {source.name for source in self.naming.sources.values()}
        return sorted({self.archive.dtypes[name] for name in stored})

    def head_state(self):
        """`"zero"` if all weights of the head are, `"not finite"` if one is not, else `None`."""
        names = [self._sources.get(f"head/{part}") for part in ("kernel", "bias")]
        sources = [self.naming.sources[name] for name in names if name in self.naming.sources]
        arrays = [self.archive.read(source.name) for source in sources]
        if not all(np.isfinite(array).all() for array in arrays):
            return "not finite"
        return "zero" if arrays and not any(array.any() for array in arrays) else None

    @property
    def tells_image_size(self):
        """Whether something in the file depends on the size of its images."""
        return self.format is KERAS or self.shape_of(POSITIONS) is not None

    @property
    def is_mapped(self):
        """Whether to read an array again costs little: it is not compressed."""
        return self.archive.is_mapped

    @property
    def has_configuration(self):
        """Whether a `config.json` came with the arrays."""
        return bool(self.archive.config)

    def options(self, num_heads=None, image_size=None):
        """The options of the model that the file describes, at its own resolution.

        Args:
            num_heads: for a file that does not tell; see `from_checkpoint`.
            image_size: for a file whose grid cannot be told from its number of positions.

        Returns:
            A dictionary, of options of `vision_transformer` or `resnet`.

        Raises:
            ValueError: if an array that tells an option is missing, or the arguments disagree with
                the file.
        """
        if num_heads is not None:
            num_heads = check_integer("num_heads", num_heads, minimum=1)
        if self.format is KERAS:
            options = self._keras_options()
        else:
            options = self._described(num_heads, image_size)
            self._warn_of_normalisation()
        if num_heads not in (None, options.get("num_heads")):
            rule = f"be that of the file, {options.get('num_heads')}"
            if is_resnet(options):
                rule = "not be given for the file of a ResNet, which has none"
            raise ValueError(f"`num_heads` must {rule}. Received: num_heads={num_heads}")
        return options

    def assumed(self, options, num_heads=None):
        """The options that neither the arrays nor a `config.json` record, with assumed values.

        Args:
            options: those of the model, as `options()` returns them.
            num_heads: attention heads that the caller has given, or `None`.
        """
        if self.format.name not in CONFIGURED or self.has_configuration:
            return {}
        # The norm of the queries is as wide as a head.
        has_heads = num_heads is not None or options.get("qk_norm")
        names = ("activation", "epsilon") if has_heads else ("num_heads", "activation", "epsilon")
        if self.format.name == "timm" and options["pooling"] == "token":
            # The mean of the tokens, without a norm of its own, has the same arrays.
            names = ("pooling", *names)
        return {name: options[name] for name in names}

    def _warn_of_normalisation(self):
        told = getattr(self.archive, "normalisation", None)
        if told is not None and any(value != 0.5 for values in told for value in values):
            logger.warning(
                "%s: its images are normalised with the mean %s and the standard deviation %s of "
                "pixels in [0, 1]; `keras_vit.preprocess` and the commands scale to [-1, 1]",
                self.path,
                *told,
            )

    def _keras_options(self):
        model = self.archive.model
        policy = next(layer for layer in model.layers if layer.weights).dtype_policy.name
        return {**describe(model), "name": model.name, "dtype": policy}

    def _described(self, num_heads, image_size):
        for path in ("patch_embedding/projection/kernel", "root_conv/kernel"):
            shape = self.shape_of(path)
            if shape is not None and (len(shape) != 4 or 0 in shape):
                raise ValueError(
                    "`path` must hold convolutions whose kernels have 4 dimensions, none of them "
                    f"0. Received: path={str(self.path)!r}, with {shape} for {path}"
                )
        try:
            options = self.format.describe(self.shape_of, self.archive.config, num_heads)
            options["image_size"] = stored_image_size(self, options, image_size)
        except (AttributeError, IndexError, KeyError, TypeError, ZeroDivisionError) as error:
            raise ValueError(
                "`path` must hold arrays, and a config.json if there is one, that describe a "
                f"Vision Transformer or a ResNet. Received: path={str(self.path)!r} ({error!r})"
            ) from error
        unknown = [name for name in FIRST_BLOCK_TELLS if name in options and not options[name]]
        if unknown:
            raise ValueError(
                "`path` must hold the arrays of at least the first block, which tell "
                f"{', '.join(unknown)}. Received: path={str(self.path)!r}"
            )
        self._check_resnet(options)
        return options

    def _check_resnet(self, options):
        stages = options.get("stages", options.get("resnet_stages", ()))
        width = options.get("width", options.get("resnet_width", 0))
        if 0 in stages or width % NUM_GROUPS:
            raise ValueError(
                "`path` must hold all stages of its ResNet, and a first convolution of a multiple "
                f"of {NUM_GROUPS} channels. Received: path={str(self.path)!r}, with {stages} units "
                f"and {width} channels"
            )

    def shape_of(self, path):
        """The shape of the array that holds the values of the variable of this path, or `None`."""
        template, indices = template_of(path)
        source = self._sources.get(template, "")
        return self.naming.shapes.get(source.format(**indices))

    def read(self, model, drop_head=False, stored_size=None):
        """The values of a model's variables, one at a time, after all names and shapes are checked.

        Args:
            model: a built model.
            drop_head: whether to leave out the file's head and `pre_logits`, and the model's.
            stored_size: image size of the file, from which its position embedding is resized;
                `None` if it has to be the model's.

        Returns:
            A generator of pairs of variable and value.

        Raises:
            ValueError: if an array is not used, missing, misshapen, damaged or not finite in the
                dtype of its variable.
        """
        variables = {variable.path: variable for variable in model.weights}
        shapes = {path: tuple(variable.shape) for path, variable in variables.items()}
        grid = token_grid(model)
        found, positions = self.match(model.name, shapes, grid, drop_head, stored_size)
        return self._values(found, variables, shapes, positions)

    def match(self, name, shapes, grid, drop_head=False, stored_size=None):
        """Checks names and shapes of the file's arrays against those of a model's variables.

        Args:
            name: of the model.
            shapes: of its variables, by path.
            grid: `(rows, columns)` of its patches, `None` for a ResNet.
            drop_head: as in `read`.
            stored_size: as in `read`.

        Returns:
            An `Entry` for each array, and the arguments of `fit_positions` or `None`.

        Raises:
            ValueError: if an array is not used, missing or misshapen.
        """
        wanted = [path for path in shapes if not (drop_head and path.startswith(HEAD_LAYERS))]
        found, without_row = entries(self.format.rows, wanted)
        positions = fit_arguments(self, shapes, grid, stored_size)
        problems = mismatches(self, found, shapes, positions is not None, drop_head)
        if without_row:
            problems.append(listed("without a place in this format", without_row))
        if problems:
            raise ValueError(
                f"`path` must hold exactly the weights of the model {name!r}. "
                f"Received: path={str(self.path)!r} ({self.format.name}), "
                f"with {'; '.join(problems)}"
            )
        return found, positions

    def _values(self, found, variables, shapes, positions):
        # Blocks that are stacked in one array come one after the other: it is read once.
        def place(entry):
            source = self.naming.sources[entry.source]
            return (source.index is not None, source.name if source.index is not None else "")

        last_name, last_array = None, None
        for entry in sorted(found, key=place):
            source = self.naming.sources[entry.source]
            if source.name != last_name:
                last_name, last_array = source.name, self._read_finite(source.name)
            array = last_array if source.index is None else last_array[source.index]
            if entry.transform == "positions" and positions is not None:
                array = fit_positions(array, *positions)
            if "head/kernel" in entry.targets and not array.any() and not self._told_zero_head:
                self._told_zero_head = True
                logger.warning(
                    "%s: all images have the same logits, as the kernel of the head is zero",
                    self.path,
                )
            targets = [shapes[path] for path in entry.targets]
            values = TRANSFORMS[entry.transform].read(array, targets)
            for path, value in zip(entry.targets, values, strict=True):
                if value.shape != shapes[path]:
                    raise ValueError(
                        f"{path} must be {shapes[path]}. "
                        f"Received: path={str(self.path)!r}, with {value.shape}"
                    )
                self._check_range(variables[path], value)
                yield variables[path], value

    def _check_range(self, variable, value):
        """Raise an error if a value is infinite in the variable's dtype."""
        if value.dtype.name == variable.dtype:
            return
        # JAX casts arrays by NumPy, which has a warning of its own.
        with np.errstate(over="ignore"):
            is_finite = ops.all(ops.isfinite(ops.cast(value, variable.dtype)))
        if not is_finite:
            raise ValueError(
                f"`path` must hold numbers that are finite in {variable.dtype}. "
                f"Received: path={str(self.path)!r}, whose values of {variable.path} are not"
            )

    def _read_finite(self, name):
        array = self.archive.read(name)
        if name not in self._finite and not np.isfinite(array).all():
            raise ValueError(
                "`path` must hold finite numbers. "
                f"Received: path={str(self.path)!r}, whose array {name!r} has NaN or infinity"
            )
        self._finite.add(name)
        return array
