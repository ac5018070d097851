"""Arrays in memory, read like those of a file."""

from keras_vit.checkpoints.archives.npz import as_float32


class ArrayArchive:
    """Arrays in memory, read like those of a file; error messages call them `path`."""

    is_mapped = True

    def __init__(self, path, arrays, config, preprocessor=None):
        self.path = path
        self.config = config
        self.preprocessor = preprocessor or {}
        self._arrays = arrays
        self.shapes = {name: tuple(array.shape) for name, array in arrays.items()}

    def read(self, name):
        """Return the array of that name in float32."""
        return as_float32(name, self._arrays[name])

    def close(self):
        """Do nothing; archives of files close them."""
