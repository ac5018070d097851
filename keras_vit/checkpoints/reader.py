"""Read an open checkpoint file: the options of its model, and arrays that fit a given model."""

import contextlib
import functools

import numpy as np
from keras import ops

from keras_vit.checkpoints.architecture import logger
from keras_vit.checkpoints.archives import open_archive
from keras_vit.checkpoints.catalog import CHECKPOINTS
from keras_vit.checkpoints.configuration import processed_size, recorded_images, valid_class_names
from keras_vit.checkpoints.formats import FORMATS, recognize
from keras_vit.checkpoints.position_rows import fit_prefix, rows_for_model, stored_image_size
from keras_vit.checkpoints.transforms import BIAS, KERNEL, TRANSFORMS, absorb, check_channels
from keras_vit.checkpoints.weight_map import POSITION_TRANSFORMS, POSITIONS, entries, template_of
from keras_vit.core.arguments import as_pair, path_error
from keras_vit.models.options import is_resnet
from keras_vit.models.structure import BLOCKS, HEAD_LAYERS, stored_grid, token_stride

# Prefixes of the paths of the head's variables.
HEAD_PATHS = tuple(f"{name}/" for name in HEAD_LAYERS)
# Maximum number of names that an error lists per kind of mismatch.
MAX_LISTED = 4


@contextlib.contextmanager
def open_checkpoint(path, format=None, key=None):
    """Open a file and recognize its layout; the context manager yields a `CheckpointReader`.

    The arguments are those of `from_checkpoint`.
    """
    if not path.exists():
        raise path_error(path, "be an existing file")
    archive = open_archive(path, [(row.suffix, row.open) for row in FORMATS.values() if row.open])
    try:
        with _path_in_errors(path):
            # Recognize published files by name: torchvision's names contain a hash.
            specs = (row.image_spec for row in CHECKPOINTS if row.url.endswith(f"/{path.name}"))
            published = next(specs, None)
            yield CheckpointReader(archive, *recognize(archive, format, key), published)
    finally:
        archive.close()


@contextlib.contextmanager
def _path_in_errors(path):
    """Add the path of a checkpoint to errors that do not contain it."""
    try:
        yield
    except ValueError as error:
        if repr(str(path)) in str(error):
            raise
        raise ValueError(f"{error} (while reading {str(path)!r})") from error


class CheckpointReader:
    """An open file of a known layout.

    Attributes:
        format: the `Format` of the file.
        naming: the `Naming` of the arrays.
        archive: the arrays by their names in the file, and the contents of its JSON files.
        records_images: whether the JSON files or the catalog record how images are resized and
            normalized.
        image_spec: the recorded `ImageSpec`, or else the default of the `format`.
        processed_size: size of the images that the recorded image processor returns, or `None`.
    """

    def __init__(self, archive, format, naming, published_images=None):
        self.path = archive.path
        self.format = format
        self.naming = naming
        self.archive = archive
        files = archive.config, archive.preprocessor, archive.path
        recorded = recorded_images(*files) if format.config_files else published_images
        self.processed_size = processed_size(*files)
        self.records_images = recorded is not None
        self.image_spec = recorded or format.image_spec
        self._rows = {target: row for row in format.rows for target in row.targets}

    @property
    def dtypes(self):
        """Names of the dtypes in which the arrays of the model are stored."""
        stored = {source.name for source in self.naming.sources.values()}
        return sorted({self.archive.dtypes[name] for name in stored})

    def head_state(self):
        """Return the `head_state` of a `Summary`: `"zero"`, `"not finite"` or `None`."""
        names = {row.source for target, row in self._rows.items() if target.startswith("head/")}
        sources = [self.naming.sources[name] for name in names if name in self.naming.sources]
        arrays = [self.archive.read(source.name) for source in sources]
        if not all(np.isfinite(array).all() for array in arrays):
            return "not finite"
        return "zero" if arrays and not any(array.any() for array in arrays) else None

    @property
    def configured_size(self):
        """The image size `(height, width)` that `archive.config` records, or `None`."""
        size = self.format.configured_size(self.archive.config)
        return as_pair(size, "image_size") if size else None

    @property
    def records_image_size(self):
        """Whether the file determines the image size of its model."""
        return self.shape_of(POSITIONS) is not None or self.configured_size is not None

    @property
    def options_without_config(self):
        """Names of the options that are not recorded because there is no `config.json`."""
        has_config = self.archive.config and self.format.config_files
        return () if has_config else self.format.config_options

    def options(self, num_heads=None, image_size=None):
        """Return the options of the model that the file describes, at the image size of the file.

        The arguments give what the file does not record, as in `from_checkpoint`.
        """
        try:
            options = self.format.describe(self.shape_of, self.archive.config, num_heads)
            size = stored_image_size(self, options, image_size)
        except (AttributeError, IndexError, KeyError, TypeError, ZeroDivisionError) as error:
            raise ValueError(
                "The arrays of `path`, and its config.json if there is one, must describe a Vision "
                f"Transformer or a ResNet. Received: path={str(self.path)!r} ({error!r})"
            ) from error
        # The first block of a ViT, or the first unit of a ResNet, determines these options.
        first = "stages width" if is_resnet(options) else "depth num_heads mlp_dim"
        values = [getattr(options, name) for name in first.split()]
        if not all(values) or 0 in (getattr(options, "resnet_stages", values[0]) or ()):
            rule = "hold the arrays of all blocks and units of the model, which determine "
            raise path_error(self.path, rule + first.replace(" ", ", "))
        recorded_heads = getattr(options, "num_heads", None)
        if num_heads not in (None, recorded_heads):
            rule = f"be that of the file, {recorded_heads}"
            raise ValueError(f"`num_heads` must {rule}. Received: num_heads={num_heads}")
        changes = {"patch_bias": True} if self._adds_bias else {}
        return options.replace(image_size=size, **changes)

    def assumed(self, options, num_heads=None):
        """Return the `options`, by name, that neither the arrays nor a `config.json` record."""
        known = {
            # The norm of the queries has the width of one head, and so gives the number of heads.
            "num_heads": num_heads is not None or getattr(options, "qk_norm", False),
            # Arrays that are read as the pooling "token" may be those of a model with "gap".
            "pooling": getattr(options, "pooling", None) != "token",
        }
        names = [name for name in self.options_without_config if not known.get(name)]
        return {name: getattr(options, name) for name in names}

    def class_names(self, num_classes):
        """Return the names of the classes that are recorded next to the file, or `None`."""
        return valid_class_names(
            self.format.class_names(self.archive.config), num_classes, self.path
        )

    @property
    def _adds_bias(self):
        """Whether `absorb` adds a bias to a patch projection that has no bias in the file."""
        has_kernel = self.shape_of(KERNEL) is not None
        return has_kernel and self.shape_of(BIAS) is None and set(self.image_spec.mean) != {0.5}

    def shape_of(self, path):
        """Return the shape of the array for the variable with this path, or `None`."""
        template, indices = template_of(path)
        if template not in self._rows:
            return None
        row = self._rows[template]
        shape = self.naming.shapes.get(row.source.format(**indices))
        if shape is not None and (0 in shape or (path == KERNEL and len(shape) not in (2, 4))):
            rule = "hold arrays of a known shape"
            raise path_error(self.path, rule, f", with {shape} for {path}")
        is_flat = shape is not None and row.transform == "flat_positions"
        return (1, *shape) if is_flat else shape

    def read(self, model, drop_head=False, is_built_from_file=False):
        """Check all names and shapes, and generate pairs of a variable and its value.

        With `drop_head`, the head and `pre_logits` are neither read nor set.
        """
        variables = {variable.path: variable for variable in model.weights}
        shapes = {path: tuple(variable.shape) for path, variable in variables.items()}
        blocks = [layer for layer in model.layers if isinstance(layer, BLOCKS)]
        heads = (getattr(blocks[0], "rows", blocks[0]).num_heads,) if blocks else (None,)
        stride = None if is_built_from_file else token_stride(model)
        target = shapes, stored_grid(model), *heads, stride
        mapped, positions = self.match(model.name, *target, drop_head)
        return self._values(mapped, variables, shapes, positions)

    def match(self, name, shapes, grid, num_heads, stride=None, drop_head=False):
        """Raise an error if names or shapes of the arrays do not fit a model.

        `name` is the name of the model, and `shapes` are the shapes of its variables by path.
        `grid` and `num_heads` are `None` for a ResNet; `stride` is as in `rows_for_model`. Return a
        list of `Entry` for the variables, and the result of `rows_for_model`.
        """
        wanted = [path for path in shapes if not (drop_head and path.startswith(HEAD_PATHS))]
        if self._adds_bias:
            if BIAS not in wanted:
                raise ValueError(
                    f"The model {name!r} must have a bias in its patch projection "
                    "(`patch_bias=True`), because the images of the file are not normalized to "
                    f"[-1, 1]. Received: path={str(self.path)!r}, with {self.image_spec}"
                )
            wanted.remove(BIAS)
        mapped, unmapped = entries(self.format.rows, wanted)
        positions = rows_for_model(self, shapes, grid, stride)
        used = {
            row.source
            for row in self.format.rows
            if drop_head and any(target.startswith(HEAD_PATHS) for target in row.targets)
        }
        fits_positions = positions is not None
        misfit = functools.partial(_misfit, fits_positions=fits_positions, num_heads=num_heads)
        problems = mismatches(self.naming, mapped, shapes, misfit, used)
        if unmapped:
            problems.append(_listed("variables that this format does not have", unmapped))
        if problems:
            rule = f"hold exactly the weights of the model {name!r}"
            received = f" ({self.format.name}), with {'; '.join(problems)}"
            raise path_error(self.path, rule, received)
        return mapped, positions

    def _values(self, mapped, variables, shapes, positions):
        # Entries are sorted so that an array that stacks all blocks is read only once.
        def sort_key(entry):
            source = self.naming.sources[entry.source]
            return (source.index is not None, source.name if source.index is not None else "")

        read_finite = functools.lru_cache(maxsize=1)(self._read_finite)
        has_zero_heads = []
        for entry in sorted(mapped, key=sort_key):
            source = self.naming.sources[entry.source]
            array = read_finite(source.name)
            array = array if source.index is None else array[source.index]
            if entry.transform in POSITION_TRANSFORMS and positions is not None:
                array = fit_prefix(array, *positions)
            if any(t.startswith("head/") and t.endswith("/kernel") for t in entry.targets):
                has_zero_heads.append(not array.any())
            targets = [shapes[path] for path in entry.targets]
            values = TRANSFORMS[entry.transform].read(array, targets)
            for path, value in zip(entry.targets, values, strict=True):
                value = self._centered(path, value, shapes)
                self._refuse_overflow(variables[path], value)
                yield variables[path], value
        if self._adds_bias:
            yield variables[BIAS], self._centered(BIAS, 0, shapes)
        if has_zero_heads and all(has_zero_heads):
            text = "%s: all images have the same logits, because the kernel of the head is zero"
            logger.warning(text, self.path)

    def _centered(self, path, value, shapes):
        """Return the value of a variable for a model that takes images in [-1, 1]."""
        if path not in (KERNEL, BIAS) or self.image_spec.is_centered:
            return value
        (entry,), _ = entries(self.format.rows, [KERNEL])
        source = self.naming.sources[entry.source]
        kernel = TRANSFORMS[entry.transform].read(self._read_finite(source.name), [shapes[KERNEL]])
        check_channels(self.image_spec, shapes[KERNEL][2], f"path={str(self.path)!r}")
        kernel, shift = absorb(kernel[0], self.image_spec)
        return (kernel if path == KERNEL else value + shift).astype("float32")

    def _refuse_overflow(self, variable, value):
        """Raise an error if a value is infinite in the variable's dtype."""
        if value.dtype.name == variable.dtype:
            return
        # On JAX, NumPy casts the array, and would warn of an overflow.
        with np.errstate(over="ignore"):
            is_finite = ops.all(ops.isfinite(ops.cast(value, variable.dtype)))
        if not is_finite:
            rule = f"hold numbers that are finite in {variable.dtype}"
            raise path_error(self.path, rule, f", whose values of {variable.path} are not")

    def _read_finite(self, name):
        array = self.archive.read(name)
        if not np.isfinite(array).all():
            received = f", whose array {name!r} has NaN or infinity"
            raise path_error(self.path, "hold finite numbers", received)
        return array


def mismatches(naming, mapped, shapes, misfit, used=()):
    """Describe the arrays that are unused, missing or misshapen for a model, one text per kind.

    Args:
        naming: the `Naming` of the file.
        mapped: a list of `Entry` for the variables to fill.
        shapes: shapes of the variables by path.
        misfit: `misfit(entry, actual, targets)` returns `None` if an array of the shape `actual`
            fits variables of the shapes `targets`, and otherwise the shape that would fit.
        used: names of other arrays that are expected, such as those of a head that is replaced.
    """
    used = {entry.source for entry in mapped} | set(used)
    missing = [repr(entry.source) for entry in mapped if entry.source not in naming.shapes]
    unused = [repr(naming.sources[name].name) for name in naming.shapes if name not in used]
    misshapen = []
    for entry in mapped:
        actual = naming.shapes.get(entry.source)
        targets = [shapes[path] for path in entry.targets]
        if actual is not None and (expected := misfit(entry, actual, targets)) is not None:
            misshapen.append(f"{entry.source!r} is {actual}, not {expected}")
    kinds = {"unused": unused, "missing": missing, "misshapen": misshapen}
    return [_listed(kind, names) for kind, names in kinds.items() if names]


def _misfit(entry, actual, targets, fits_positions, num_heads):
    transform = TRANSFORMS[entry.transform]
    expected = transform.shape(targets, num_heads)
    is_fitted = entry.transform in POSITION_TRANSFORMS and fits_positions
    if is_fitted and actual[:-2] == expected[:-2] and actual[-1] == expected[-1]:
        return None
    return None if transform.accepts(tuple(actual), tuple(expected)) else tuple(expected)


def _listed(kind, names):
    """Return a text such as `missing: a, b and 3 more`."""
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return f"{kind}: {', '.join(names[:MAX_LISTED])}{more}"
