"""The command `keras-vit`, which is also `python -m keras_vit`."""

import contextlib
import os
import signal
import sys
import threading

# Seconds after which a Ctrl-C comes again, if nothing has come of it.
_AGAIN = 5.0


def _interrupt(number, _):
    """Raise `KeyboardInterrupt`, and do it again if a callback of XLA has swallowed it."""
    timer = threading.Timer(_AGAIN, signal.raise_signal, [number])
    timer.daemon = True
    timer.start()
    raise KeyboardInterrupt


def run():
    """Run the command line; exit with status 130 after Ctrl-C."""
    signal.signal(signal.SIGINT, _interrupt)
    is_orderly = False
    try:
        # Ctrl-C may come during the import.
        from keras_vit.cli import main

        main()
        return
    except KeyboardInterrupt:
        print("keras-vit: stopped", file=sys.stderr)
    except SystemExit as error:
        if error.code != 130:
            raise
        # The context is a `KeyboardInterrupt`, which has a text if a run has saved its state.
        is_orderly = bool(getattr(error.__context__, "args", ()))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    if "jax" in sys.modules and "ray" not in sys.modules and not is_orderly:
        # XLA threads that still compile crash a normal exit.
        os._exit(130)
    sys.exit(130)


if __name__ == "__main__":
    run()
