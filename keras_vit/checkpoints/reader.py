"""An open checkpoint: the model that it describes, whether it fits a model, and its values."""

import contextlib

import numpy as np
from keras import ops

from keras_vit.checkpoints.architecture import logger, naming_file
from keras_vit.checkpoints.archives import open_archive
from keras_vit.checkpoints.configuration.class_names import valid_class_names
from keras_vit.checkpoints.configuration.images import (
    processed_size,
    recorded_normalization,
    recorded_resizing,
)
from keras_vit.checkpoints.formats import FORMATS, opening_format, recognize
from keras_vit.checkpoints.matching import HEAD_PATHS, listed, mismatches
from keras_vit.checkpoints.normalization import (
    BIAS,
    KERNEL,
    absorb,
    check_channels,
    is_centered,
    shifts,
)
from keras_vit.checkpoints.positions import fit_arguments, fit_positions, stored_image_size
from keras_vit.checkpoints.transforms import TRANSFORMS
from keras_vit.checkpoints.weight_map import POSITION_TRANSFORMS, POSITIONS, entries, template_of
from keras_vit.core.arguments import as_pair, check_integer, path_error
from keras_vit.core.resizing import WHOLE_IMAGE
from keras_vit.layers.convolution import NUM_GROUPS
from keras_vit.models.base import CENTERED
from keras_vit.models.parts import stored_grid
from keras_vit.models.variants import is_resnet

# Options that follow from the arrays of the first block or unit.
OPTIONS_OF_FIRST_BLOCK = ("depth", "num_heads", "mlp_dim", "stages")


@contextlib.contextmanager
def open_checkpoint(path, format=None):
    """Open a file and recognize its layout; return a context manager for a `CheckpointReader`."""
    if not path.exists():
        raise path_error(path, "be an existing file")
    own = opening_format(path)
    others = [row.suffix for row in FORMATS.values() if row.open]
    archive = own.open(path) if own else open_archive(path, others)
    try:
        with naming_file(path, getattr(archive, "config", True)):
            yield CheckpointReader(archive, *recognize(archive, format, own))
    finally:
        archive.close()


class CheckpointReader:
    """An open file of a known layout: its `format`, and its arrays under the names of the layout.

    `archive` has the arrays under the names in the file, and the configuration next to it.
    `normalization` and `resizing` are those of `ImageModel`, which are assumed unless
    `records_images`. `processed_size` is the size of the images that the image processor returns,
    or `None`.
    """

    def __init__(self, archive, format, naming):
        self.path = archive.path
        self.format = format
        self.naming = naming
        self.archive = archive
        facts = archive.config, archive.preprocessor, archive.path
        normalization = recorded_normalization(*facts)
        self.records_images = normalization is not None
        self.normalization = normalization or CENTERED
        self.resizing = recorded_resizing(*facts) or WHOLE_IMAGE
        self.processed_size = processed_size(*facts)
        self._finite = set()
        self._has_warned_of_head = False
        self._rows = {target: row for row in format.rows for target in row.targets}

    @property
    def dtypes(self):
        """Names of the dtypes in which the arrays of the model are stored."""
        stored = {source.name for source in self.naming.sources.values()}
        return sorted({self.archive.dtypes[name] for name in stored})

    def head_state(self):
        """Return `"zero"` or `"not finite"` for a head of zeros or with NaN; otherwise `None`."""
        names = {row.source for target, row in self._rows.items() if target.startswith("head/")}
        sources = [self.naming.sources[name] for name in names if name in self.naming.sources]
        arrays = [self.archive.read(source.name) for source in sources]
        if not all(np.isfinite(array).all() for array in arrays):
            return "not finite"
        return "zero" if arrays and not any(array.any() for array in arrays) else None

    @property
    def configured_size(self):
        """The recorded image size `(height, width)`, or `None`."""
        size = self.format.configured_size(self.archive.config)
        return as_pair(size, "image_size") if size else None

    @property
    def records_image_size(self):
        """Whether the file determines the size of its images."""
        return self.shape_of(POSITIONS) is not None or self.configured_size is not None

    @property
    def options_without_config(self):
        """Options that are not recorded because there is no `config.json`."""
        return () if self.archive.config else self.format.config_options

    def options(self, num_heads=None, image_size=None):
        """Return the options of the model that the file describes, at its own resolution.

        The arguments are for a file that does not record them, as in `from_checkpoint`.
        """
        if num_heads is not None:
            num_heads = check_integer("num_heads", num_heads, minimum=1)
        options = self._described(num_heads, image_size)
        if self._adds_bias:
            options["patch_bias"] = True
        if num_heads not in (None, options.get("num_heads")):
            rule = f"be that of the file, {options.get('num_heads')}"
            if is_resnet(options):
                rule = "not be given for the file of a ResNet, which has none"
            raise ValueError(f"`num_heads` must {rule}. Received: num_heads={num_heads}")
        return options

    def assumed(self, options, num_heads=None):
        """Return those of `options` that neither the arrays nor a `config.json` record."""
        known = {
            # The norm of the queries has the width of one head, which gives the number of heads.
            "num_heads": num_heads is not None or options.get("qk_norm"),
            # A model with the pooling "gap" may have the same arrays as one with "token".
            "pooling": options.get("pooling") != "token",
        }
        return {name: options[name] for name in self.options_without_config if not known.get(name)}

    @property
    def classifier_kind(self):
        """The class of classifiers that the `config.json` names, or `None`."""
        kinds = self.archive.config.get("architectures") or ()
        return next((k for k in kinds if str(k).endswith("ForImageClassification")), None)

    def class_names(self, num_classes):
        """Return the names of the classes that are recorded next to the file, or `None`."""
        return valid_class_names(
            self.format.class_names(self.archive.config), num_classes, self.path
        )

    @property
    def _adds_bias(self):
        """Whether the patch projection of the file has no bias, and gets one from the mean."""
        has_kernel = self.shape_of(KERNEL) is not None
        return has_kernel and self.shape_of(BIAS) is None and shifts(self.normalization)

    def _described(self, num_heads, image_size):
        for path in ("patch_embedding/projection/kernel", "root_conv/kernel"):
            shape = self.shape_of(path)
            axes = 2 if self._is(path, "flat_patches") else 4
            if shape is not None and (len(shape) != axes or 0 in shape):
                rule = f"hold convolutions whose kernels have {axes} dimensions, none of them 0"
                raise path_error(self.path, rule, f", with {shape} for {path}")
        try:
            options = self.format.describe(self.shape_of, self.archive.config, num_heads)
            options["image_size"] = stored_image_size(self, options, image_size)
        except (AttributeError, IndexError, KeyError, TypeError, ZeroDivisionError) as error:
            raise ValueError(
                "The arrays of `path`, and its config.json if there is one, must describe a Vision "
                f"Transformer or a ResNet. Received: path={str(self.path)!r} ({error!r})"
            ) from error
        unknown = [name for name in OPTIONS_OF_FIRST_BLOCK if name in options and not options[name]]
        if unknown:
            rule = "hold the arrays of at least the first block, which determine "
            raise path_error(self.path, rule + ", ".join(unknown))
        self._check_resnet(options)
        return options

    def _check_resnet(self, options):
        stages = options.get("stages", options.get("resnet_stages")) or ()
        width = options.get("width", options.get("resnet_width", 0))
        if 0 in stages or width % NUM_GROUPS:
            raise ValueError(
                "`path` must hold all stages of its ResNet, and a first convolution of a multiple "
                f"of {NUM_GROUPS} channels. Received: path={str(self.path)!r}, with {stages} units "
                f"and {width} channels"
            )

    def shape_of(self, path):
        """Return the shape of the array for the variable of this path, or `None`."""
        template, indices = template_of(path)
        if template not in self._rows:
            return None
        shape = self.naming.shapes.get(self._rows[template].source.format(**indices))
        return (1, *shape) if shape is not None and self._is(path, "flat_positions") else shape

    def _is(self, path, transform):
        return path in self._rows and self._rows[path].transform == transform

    def read(self, model, drop_head=False, stored_size=None):
        """Check all names and shapes, and generate pairs of a model's variables and their values.

        `drop_head` ignores the head and `pre_logits` of the file and of the model. `stored_size` is
        that of `fit_arguments`.
        """
        variables = {variable.path: variable for variable in model.weights}
        shapes = {path: tuple(variable.shape) for path, variable in variables.items()}
        grid = stored_grid(model)
        found, positions = self.match(model.name, shapes, grid, drop_head, stored_size)
        return self._values(found, variables, shapes, positions)

    def match(self, name, shapes, grid, drop_head=False, stored_size=None):
        """Check names and shapes of the arrays against the `shapes` of a model's variables by path.

        `grid` is `None` for a ResNet. Return a list with an `Entry` for each array, and the
        arguments of `fit_positions` or `None`.
        """
        wanted = [path for path in shapes if not (drop_head and path.startswith(HEAD_PATHS))]
        if self._adds_bias:
            if BIAS not in wanted:
                raise ValueError(
                    f"The model {name!r} must have a bias in its patch projection "
                    "(`patch_bias=True`), because the images of the file are not normalized to "
                    f"[-1, 1]. Received: path={str(self.path)!r}, with {self.normalization}"
                )
            wanted.remove(BIAS)
        found, without_row = entries(self.format.rows, wanted)
        positions = fit_arguments(self, shapes, grid, stored_size)
        problems = mismatches(self, found, shapes, positions is not None, drop_head)
        if without_row:
            problems.append(listed("without a place in this format", without_row))
        if problems:
            rule = f"hold exactly the weights of the model {name!r}"
            received = f" ({self.format.name}), with {'; '.join(problems)}"
            raise path_error(self.path, rule, received)
        return found, positions

    def _values(self, found, variables, shapes, positions):
        # Sorted such that an array of stacked blocks is read once.
        def place(entry):
            source = self.naming.sources[entry.source]
            return (source.index is not None, source.name if source.index is not None else "")

        last_name, last_array, has_zero_heads = None, None, []
        for entry in sorted(found, key=place):
            source = self.naming.sources[entry.source]
            if source.name != last_name:
                last_name, last_array = source.name, self._read_finite(source.name)
            array = last_array if source.index is None else last_array[source.index]
            if entry.transform in POSITION_TRANSFORMS and positions is not None:
                array = fit_positions(array, *positions)
            if any(t.startswith("head/") and t.endswith("/kernel") for t in entry.targets):
                has_zero_heads.append(not array.any())
            targets = [shapes[path] for path in entry.targets]
            values = TRANSFORMS[entry.transform].read(array, targets)
            for path, value in zip(entry.targets, values, strict=True):
                if value.shape != shapes[path]:
                    raise ValueError(
                        f"{path} must be {shapes[path]}. "
                        f"Received: path={str(self.path)!r}, with {value.shape}"
                    )
                value = self._centered(path, value, shapes)
                self._check_range(variables[path], value)
                yield variables[path], value
        if self._adds_bias:
            yield variables[BIAS], self._centered(BIAS, 0, shapes)
        if has_zero_heads and all(has_zero_heads) and not self._has_warned_of_head:
            self._has_warned_of_head = True
            text = "%s: all images have the same logits, as the kernel of the head is zero"
            logger.warning(text, self.path)

    def _centered(self, path, value, shapes):
        """Return the value of a variable of a model that takes images in [-1, 1]."""
        if path not in (KERNEL, BIAS) or is_centered(self.normalization):
            return value
        entry, *_ = entries(self.format.rows, [KERNEL])[0]
        source = self.naming.sources[entry.source]
        kernel = TRANSFORMS[entry.transform].read(self._read_finite(source.name), [shapes[KERNEL]])
        check_channels(self.normalization, shapes[KERNEL][2], self.path)
        kernel, shift = absorb(kernel[0], self.normalization)
        return (kernel if path == KERNEL else value + shift).astype("float32")

    def _check_range(self, variable, value):
        """Raise an error if a value is infinite in the variable's dtype."""
        if value.dtype.name == variable.dtype:
            return
        # JAX casts arrays with NumPy, which warns of an overflow.
        with np.errstate(over="ignore"):
            is_finite = ops.all(ops.isfinite(ops.cast(value, variable.dtype)))
        if not is_finite:
            rule = f"hold numbers that are finite in {variable.dtype}"
            raise path_error(self.path, rule, f", whose values of {variable.path} are not")

    def _read_finite(self, name):
        array = self.archive.read(name)
        if name not in self._finite and not np.isfinite(array).all():
            found = f", whose array {name!r} has NaN or infinity"
            raise path_error(self.path, "hold finite numbers", found)
        self._finite.add(name)
        return array
