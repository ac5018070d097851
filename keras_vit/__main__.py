"""The command `keras-vit`, which is also `python -m keras_vit`."""

import os
import sys


def run():
    """Run the command of the arguments of the process, which exits with 130 after Ctrl-C."""
    try:
        # It may come while this is imported.
        from keras_vit.cli import main

        main()
        return
    except KeyboardInterrupt:
        print("keras-vit: stopped", file=sys.stderr)
    except SystemExit as error:
        if error.code != 130:
            raise
    sys.stdout.flush()
    sys.stderr.flush()
    if "jax" in sys.modules and "ray" not in sys.modules:
        # Threads of XLA that still compile would crash a process that is cleaned up.
        os._exit(130)
    sys.exit(130)


if __name__ == "__main__":
    run()
