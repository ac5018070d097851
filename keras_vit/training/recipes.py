"""The recipes of `recipes.toml`, those of the paper and others: `ROWS` by name, and `RECIPES`."""

import dataclasses
import pathlib
import tomllib

from keras_vit.training.recipe import Recipe


@dataclasses.dataclass(frozen=True)
class RecipeRow:
    """A recipe with its origin.

    Args:
        name: name of the recipe.
        recipe: the `Recipe`.
        source: where its settings are from.
        reported: accuracy that the source reports, on ImageNet unless it names another dataset.
    """

    name: str
    recipe: Recipe
    source: str
    reported: str = ""


def recipe_from(settings):
    """Return the `Recipe` of a dictionary of TOML or JSON, which have lists for tuples.

    The string `"None"` stands for `None`, which TOML lacks.
    """

    def as_setting(value):
        if isinstance(value, list):
            return tuple(value)
        return None if value == "None" else value

    return Recipe(**{name: as_setting(value) for name, value in settings.items()})


def _read_rows():
    rows = {}
    file = pathlib.Path(__file__).with_name("recipes.toml")
    for name, settings in tomllib.loads(file.read_text(encoding="utf-8")).items():
        source, reported = settings.pop("source"), settings.pop("reported", "")
        base = settings.pop("base", None)
        inherited = vars(rows[base].recipe) if base else {}
        rows[name] = RecipeRow(name, recipe_from({**inherited, **settings}), source, reported)
    return rows


ROWS = _read_rows()
RECIPES = {name: row.recipe for name, row in ROWS.items()}


def find_recipe(recipe):
    """Return the `Recipe` of an argument: one, the name of a row, or what JSON made of one."""
    if isinstance(recipe, dict):
        return recipe_from(recipe)
    if not isinstance(recipe, Recipe) and recipe not in RECIPES:
        raise ValueError(
            f"`recipe` must be a `Recipe` or one of {', '.join(RECIPES)}. "
            f"Received: recipe={recipe!r}"
        )
    return RECIPES.get(recipe, recipe)
