"""The arguments of `keras-vit train --resume --workdir RUN`, which a run has recorded."""

import dataclasses
import pathlib
import shlex

from keras_vit.checkpoints.runs import LAST_MODEL, RUN_FILE, read_run
from keras_vit.cli.run_commands import as_recipe, train_command
from keras_vit.cli.usage import names_recipe
from keras_vit.training.recipes import RECIPES

# The facts of a study, in the folder of its runs; its module imports Keras.
STUDY_FILE = "study.json"
# What else `run.json` records that is a flag.
_RECORDED = ("model", "data", "classes", "fraction", "exclude", "dtype", "teacher")
_RECORDED += ("strategy", "model_shards", "keep_head")
_RECORDED += ("save_steps", "keep", "max_skipped", "data_dir")


def complete(args):
    """Return the arguments of a command, complete if they resume a run without naming its recipe.

    Flags that are given, such as `--save-steps` or another `--strategy`, are kept.

    Raises:
        ValueError: if the directory has no run, or one that this command cannot repeat.
    """
    if args[:1] != ["train"] or "--resume" not in args or {"-h", "--help"} & {*args}:
        return args
    words = [word for flag in args[1:] for word in flag.split("=", 1)]
    if "--workdir" not in words[:-1]:
        raise ValueError(
            "`--resume` needs `--workdir`, the directory of the run. Received: no `--workdir`"
        )
    if names_recipe(words, {"auto", *RECIPES}):
        return args
    workdir = pathlib.Path(words[words.index("--workdir") + 1]).expanduser()
    run = read_run(workdir / LAST_MODEL)
    # Runs of fine-tuning are inside the folder of their pre-training.
    if any((folder / STUDY_FILE).is_file() for folder in [*workdir.resolve().parents][:2]):
        raise ValueError(
            "`--workdir` must be the directory of a run that `keras-vit train` began. Received: "
            f"workdir={str(workdir)!r}, a run of `keras-vit study`, which the study resumes"
        )
    if not {"recipe", "model", "data"} <= run.keys():
        has_seeds = any(workdir.glob("seed-*"))
        seeds = ", which has runs of `--seeds`: repeat the command that began them"
        raise ValueError(
            f"`--workdir` must be the directory of a run, with a {RUN_FILE}, to resume it without "
            f"its recipe. Received: workdir={str(workdir)!r}{seeds if has_seeds else ''}"
        )
    if run.get("split", "train") != "train":
        raise ValueError(
            "`--resume` of a run of `--sweep-lr` or of other splits needs the command or the call "
            f"that began it. Received: workdir={str(workdir)!r}, trained on {run['split']!r}"
        )
    given = {word[2:].replace("-", "_") for word in words if word.startswith("--")}
    strategy = words[words.index("--strategy") + 1] if "strategy" in given else None
    if strategy not in (None, run.get("strategy", "auto")):
        # The recorded number of shards is for the recorded strategy.
        given.add("model_shards")
    return shlex.split(_command(run, given))[1:] + args[1:]


def check_chosen(auto, recipe):
    """Return the recipe of a run of `auto`, after a check that given settings are those of the run.

    A default, such as `--seed 0`, counts as not given.

    Raises:
        ValueError: if a setting that was given is not that of the run.
    """
    for field in dataclasses.fields(auto):
        value, chosen = getattr(auto, field.name), getattr(recipe, field.name, None)
        if field.name != "minutes" and value not in (field.default, chosen):
            raise ValueError(
                f"`{field.name}` must be {chosen!r}, as when the run began. "
                f"Received: {field.name}={value!r}"
            )
    return recipe


def _command(run, given):
    options = {name: run.get(name) for name in _RECORDED if name not in given}
    for measured in run.get("measurements", ())[:1]:
        options |= {
            "fewshot_every": measured["every"],
            "fewshot_data": measured["data"],
            "fewshot_shots": measured["shots"],
            "fewshot_seeds": len(measured["seeds"]),
            "fewshot_classes": measured["classes"],
        }
    return train_command("finetune", as_recipe(run["recipe"]), options)
