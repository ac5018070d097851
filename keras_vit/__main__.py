"""The command `keras-vit`, which is also `python -m keras_vit`."""

import os
import sys


def run():
    """Run the command line; exit with status 130 after Ctrl-C."""
    try:
        # Imported inside `try`, so that Ctrl-C during the import is also caught.
        from keras_vit.cli import main

        main()
    except KeyboardInterrupt as error:
        # If the error has arguments, training has already printed a message.
        if not error.args:
            print("keras-vit: stopped", file=sys.stderr, flush=True)
            if "jax" in sys.modules and "ray" not in sys.modules:
                # A normal exit would crash if XLA threads are still compiling.
                os._exit(130)
        sys.exit(130)


if __name__ == "__main__":
    run()
