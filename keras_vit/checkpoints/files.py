"""Files that are never half written."""

import contextlib
import os
import pathlib
import uuid

# In the name of a file that is being written.
PARTIAL = ".partial"


@contextlib.contextmanager
def replacing(path):
    """Gives a path beside a file, and puts what was written there in the file's place at the end.

    Args:
        path: of the file.

    Raises:
        OSError: if it cannot be written; the old file is then still there, and nothing else.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a directory")
    # Another process may be writing the same file, in its own way.
    partial = path.with_name(f".{path.stem}{PARTIAL}.{uuid.uuid4().hex}{path.suffix}")
    try:
        yield partial
        with partial.open("rb") as file:
            # Or a machine that goes down could leave an empty file of the new name.
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise OSError(f"{str(path)!r} could not be written: {error}") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
