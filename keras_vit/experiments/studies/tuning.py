"""The choice of a recipe's settings on validation images, for each line of a study."""

import dataclasses
import itertools
import logging

from keras_vit.core.files import read_csv, write_csv
from keras_vit.experiments.studies.runs import train_setting
from keras_vit.training.callbacks import NotFiniteError

TUNING = "tuning.csv"


class Tuning:
    """Chooses the values of `plan.tune` for settings, each once, and records all that were tried.

    Each combination is trained with the first seed. The one with the highest validation accuracy at
    the end of training is chosen, the first of equal ones. Test images are not used.

    Args:
        plan: a `Plan`.
    """

    def __init__(self, plan):
        self.plan = plan
        self.chosen = {}
        self.path = plan.workdir / TUNING
        # Those of settings that a resumed study does not choose again.
        self.rows = {self._key(row): row for row in read_csv(self.path)}

    def __call__(self, setting):
        """Return a setting with the chosen values; masked patches have no accuracy to choose by."""
        recipe = dataclasses.replace(self.plan.recipe, **setting.changes)
        if not self.plan.tune or not recipe.is_of_classes:
            return setting
        if setting.name not in self.chosen:
            self.chosen[setting.name] = self._choose(setting)
        return self.chosen[setting.name]

    def _choose(self, setting):
        best, highest = None, -1
        for values in itertools.product(*self.plan.tune.values()):
            tuned = tuple(zip(self.plan.tune, values, strict=True))
            tried = dataclasses.replace(setting, tuned=tuned)
            accuracy = self._accuracy(tried)
            row = {"setting": setting.name, **dict(tuned), "accuracy": accuracy}
            self.rows[self._key(row)] = row
            write_csv(self.path, list(self.rows.values()))
            if accuracy is not None and accuracy > highest:
                best, highest = tried, accuracy
        if best is None:
            raise NotFiniteError(
                "One of the values of `tune` must not diverge. "
                f"Received: tune={self.plan.tune} for {setting.name}"
            )
        return best

    def _key(self, row):
        """Return the setting and its values as text, as a file has them."""
        return row["setting"], *(str(row.get(field)) for field in self.plan.tune)

    def _accuracy(self, tried):
        try:
            history = train_setting(self.plan, tried, self.plan.recipe.seed).history
        except NotFiniteError as error:
            logging.getLogger("keras_vit").warning("%s", error)
            return None
        return history[-1]["val_accuracy"]
