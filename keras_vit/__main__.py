"""The command `keras-vit`, which is also `python -m keras_vit`."""

import sys


def run():
    """Run the command line; exit with status 130 after Ctrl-C, also during an import."""
    try:
        from keras_vit.cli import main

        main()
    except KeyboardInterrupt:
        print("keras-vit: stopped", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    run()
