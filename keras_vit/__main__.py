"""The command `keras-vit`, which is also `python -m keras_vit`."""

import os
import sys


def run():
    """Run the command line; exit with status 130 after Ctrl-C."""
    try:
        # Ctrl-C may come during the import.
        from keras_vit.cli import main

        main()
    except KeyboardInterrupt as error:
        # A stopped training has already printed a message.
        if not error.args:
            print("keras-vit: stopped", file=sys.stderr, flush=True)
            if "jax" in sys.modules and "ray" not in sys.modules:
                # XLA threads that still compile crash a normal exit.
                os._exit(130)
        sys.exit(130)


if __name__ == "__main__":
    run()
