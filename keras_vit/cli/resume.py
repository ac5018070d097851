"""`keras-vit resume`."""

import dataclasses
import pathlib
from typing import Annotated

import tyro

from keras_vit.cli.arguments import Command
from keras_vit.cli.train import show_run


@dataclasses.dataclass
class Resume(Command):
    """Resume a run of `keras-vit train` that was stopped, with the settings it was begun with.

    Runs of `--seeds` and `--sweep-lr` resume with the command that began them and `--resume`.

    Example: keras-vit resume runs/pets

    Args:
        workdir: directory of the run.
        model: where the model that the run began from is now, if it has moved.
        data: where the images are now, as in `keras-vit train`.
        teacher: where the teacher is now.
        strategy: other devices, as in `keras-vit train`.
    """

    workdir: Annotated[pathlib.Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    model: str | None = None
    data: str | None = None
    teacher: str | None = None
    strategy: str | None = None

    def run(self):
        """Train, and print where the results are."""
        from keras_vit.evaluation import FewshotAccuracy
        from keras_vit.training.callbacks import MeasureRegularly
        from keras_vit.training.job import recorded_arguments, train

        workdir = self.workdir.expanduser().resolve()
        arguments, measured = recorded_arguments(workdir)
        for name in ("model", "data", "teacher", "strategy"):
            if getattr(self, name) is not None:
                arguments[name] = getattr(self, name)
        if self.strategy is not None:
            # The recorded number is that of the recorded strategy.
            arguments["model_shards"] = None
        reading = {name: arguments[name] for name in ("data_dir", "max_skipped")}
        callbacks = [
            MeasureRegularly(settings.pop("every"), FewshotAccuracy(**settings, **reading))
            for settings in measured
        ]
        run = train(**arguments, workdir=workdir, resume=True, callbacks=callbacks)
        show_run(run, callbacks, arguments["data"] if arguments["validation"] else None)
