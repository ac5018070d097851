"""Write the pages of docs/ that are tables, and the tables of benchmarks in other pages.

Example: nox -s docs
"""

import csv
import functools
import json
import pathlib
import re

from keras_vit.checkpoints import list_checkpoints
from keras_vit.checkpoints.formats import FORMATS
from keras_vit.checkpoints.transforms import TRANSFORMS
from keras_vit.cli.command import markdown_table
from keras_vit.cli.models import COLUMNS, table_row
from keras_vit.models.variants import VARIANTS
from keras_vit.training.recipe import ROWS

WEIGHT_MAPS = """# Weight maps

Each array of a file, and its variable in the model. `{i}` is the index of a Transformer block,
`{n}` its number from 1; `{s}` and `{u}` are the stage and the number of a residual unit, `{u:02}`
with two digits. One tensor of a file may hold several variables. The shapes are those of the
variables.

Written by `nox -s docs` from the rows in `keras_vit/checkpoints/formats/`, which are
used for reading and for writing.
"""
SUPPORT = """# Which models of other projects are read and written

`from_checkpoint` recognizes the layout of a file; `save_checkpoint(model, path, format)` writes it.
`format="huggingface"` and `format="timm"` choose the layout among those of the project: the one
that the model was read from, or the first that can describe the model.

The layouts of timm and transformers are tested with the real packages, on TensorFlow, JAX and
torch: models with random weights give the same outputs within 2e-5 in both directions, and files
that are read and written again keep their arrays. Google's layouts are tested with outputs of the
original code, and with the names and shapes of the released files. Only the image tower or the
encoder of the models in the last column is read. [Weight maps](weight_maps.md) lists the arrays
of each layout, [Published checkpoints](catalogue.md) the published files.

Written by `nox -s docs` from the rows in `keras_vit/checkpoints/formats/`.

"""
SUPPORT_COLUMNS = ("`format`", "files", "read and written", "read only")
CATALOGUE = """# Published checkpoints

`keras_vit.from_checkpoint(name)` loads each of these; the part after the slash is the `weights=` of
a builder. Images are scaled to [-1, 1] (`keras_vit.preprocess`). Classes: 21843 are ImageNet-21k,
1000 ImageNet-1k, 0 an image tower without a head; "(zero)" was published with a head of zeros, for
fine-tuning. The source reports the accuracy for this very file, on ImageNet-1k's validation images;
"(linear)" is that of a linear classifier of the features. `hf://` is a repository of the Hugging
Face Hub, and needs `pip install 'keras-vit-zoo[hub]'`; DINOv3's are gated. The license is the one
that the Hub shows for the weights.

Written by `nox -s docs` from `keras_vit/checkpoints/catalog/published.py` and `hub_models.py`.

| name | size | classes | `pre_logits` | activation | top-1 | file | license | source |
| --- | ---: | ---: | ---: | --- | ---: | --- | --- | --- |
"""

RECIPES_PAGE = """# Recipes

`keras-vit train NAME` trains a model by one of these recipes; every setting is a flag, see
`keras-vit train NAME --help`. In Python a recipe is a row of `keras_vit.training.recipe.RECIPES`;
`dataclasses.replace` changes it. The last column is
the accuracy that the source reports, on ImageNet unless another dataset is named; none of them was
measured here.

SGD has a momentum of 0.9, and AdamW has optax's defaults; both compute the same updates as optax.
Weight decay applies to kernels only, and is multiplied with the learning rate as in the paper. The
learning rate rises linearly from 0 in the warm-up steps; the decay `staircase` divides it by 10 at
each of the given steps. Recipes of BiT-HyperRule with `tiny_images` are for images below 96 x 96
pixels.

Written by `nox -s docs` from `keras_vit/training/recipes.toml`.

"""
RESULTS = pathlib.Path(__file__).parent.parent / "benchmarks" / "results"
SETTINGS = tuple(
    (backend, dtype) for backend in ("tensorflow", "jax") for dtype in ("float32", "mixed_bfloat16")
)
RESNETS = (("BiT_R50x1", "tensorflow"), ("BiT_R50x1", "torch"), ("R50_B16", "torch"))
# With the tanh GELU and with the erf GELU.
OURS = ("keras_vit", "keras_vit erf")
PEER_COLUMNS = (
    *("ViT-B/16 on", "relative to", "forward", "forward, erf"),
    *("training step", "training step, erf"),
)
RESNET_COLUMNS = ("In float32", "relative to", "forward", "training step")
CHOSEN_COLUMNS = ("relative to", *map(", ".join, SETTINGS))
SERVED = {"ViT_B16": "ViT-B/16", "R50_B16": "R50+ViT-B/16", "BiT_R50x1": "BiT-R50x1"}
SERVING_COLUMNS = ("1 image", "8 images", "images/s", "to float32", "difference")
PUBLISHED_COLUMNS = (
    *("builder", "parameters", "GFLOPs at 224 pixels", "best published file", "its pixels"),
    "its top-1 accuracy",
)
SPEED_COLUMNS = ("on 2 CPU cores", "images per second", "peak memory, GiB")
RECIPE_COLUMNS = (
    *("name", "size", "batch", "optimizer", "learning rate", "rates to try", "decay"),
    *("warm-up", "length", "weight decay", "dropout", "clipped at", "source", "reported"),
)


def weight_maps():
    """Return the page of the weight maps."""
    sections = [
        f"## {format.title}\n\n{_weight_map(format.rows)}\n"
        for format in FORMATS.values()
        if format.title
    ]
    return "\n".join([WEIGHT_MAPS, *sections])


def _weight_map(rows):
    lines = ["| array in the file | variable of the model | layout |", "| --- | --- | --- |"]
    for row in rows:
        targets = ", ".join(f"`{target}`" for target in row.targets)
        lines.append(f"| `{row.source}` | {targets} | {TRANSFORMS[row.transform].meaning} |")
    return "\n".join(lines)


def support():
    """Return the page of the models whose files are read and written."""
    rows = [
        (f"`{row.name}`", f"`{row.suffix}`", ", ".join(row.models), ", ".join(row.read_only_models))
        for row in FORMATS.values()
        if row.models
    ]
    table = markdown_table(SUPPORT_COLUMNS, rows).replace("---:", "---")
    return f"{SUPPORT}{table}\n"


def catalogue():
    """Return the page of the published checkpoints."""
    return CATALOGUE + "".join(_line(row) for row in list_checkpoints())


def _line(row):
    names = {"gelu_tanh": "GELU, tanh", "gelu": "GELU, erf", "quick_gelu": "quick GELU"}
    activation = names.get(row.activation, "SwiGLU" if row.activation == "silu" else "ReLU")
    accuracy = f"{row.accuracy:.2f}" if row.accuracy else "-"
    if row.linear_accuracy:
        accuracy = f"{row.linear_accuracy:.1f} (linear)"
    cells = (
        f"`{row.name}`",
        row.image_size,
        f"{row.num_classes}{' (zero)' if row.zero_head else ''}",
        row.representation_size or "-",
        activation,
        accuracy,
        f"`{row.url}`",
        row.license or "-",
        row.source,
    )
    return f"| {' | '.join(map(str, cells))} |\n"


def recipes():
    """Return the page of the recipes."""
    rows = [_recipe_row(row) for row in ROWS.values()]
    return RECIPES_PAGE + markdown_table(RECIPE_COLUMNS, rows) + "\n"


def _recipe_row(row):
    recipe = row.recipe
    return (
        f"`{row.name}`",
        str(recipe.image_size),
        str(recipe.batch_size),
        recipe.optimizer,
        f"{recipe.learning_rate:g}",
        ", ".join(map(str, recipe.learning_rates)) or "-",
        " ".join([recipe.decay, *map(str, recipe.boundaries)]),
        str(recipe.warmup_steps),
        f"{recipe.epochs} epochs" if recipe.epochs else f"{recipe.steps} steps",
        *(str(value or "-") for value in (recipe.weight_decay, recipe.dropout, recipe.clip_norm)),
        row.source,
        row.reported or "-",
    )


def model_tables():
    """Return the tables of the models of docs/ and README.md."""
    rows = list(map(table_row, VARIANTS))
    published = markdown_table(PUBLISHED_COLUMNS, list(_published_rows(rows)))
    return {
        "models.md": [markdown_table(COLUMNS, rows), published, _speeds()],
        "../README.md": [published],
    }


def _speeds():
    """Return the table of what `keras-vit benchmark` measured."""
    with (RESULTS / "models.csv").open() as file:
        rows = [
            (
                f"`{row['model']}`",
                f"{float(row['images_per_second']):.1f}",
                f"{int(row['peak_bytes']) / 2**30:.2f}",
            )
            for row in csv.DictReader(file)
        ]
    return markdown_table(SPEED_COLUMNS, rows)


def _published_rows(rows):
    """Yield the file with the best reported accuracy of each model that has one."""
    for name, *_, parameters, flops in rows:
        files = [row for row in list_checkpoints() if row.name.startswith(f"{name}/")]
        best = max(files, key=lambda row: row.accuracy or 0, default=None)
        if best and best.accuracy:
            tag = best.name.partition("/")[2]
            pixels = f"{best.image_size}"
            yield f"`{name}`", parameters, flops, f"`{tag}`", pixels, f"{best.accuracy:.2f} %"


def benchmark_tables():
    """Return the tables of docs/ that show what is in benchmarks/results/."""
    vit = {", ".join(setting): _results("ViT_B16", *setting) for setting in SETTINGS}
    all_peers = [row for label, results in vit.items() for row in _rows(label, results, OURS)]
    resnets = [
        row
        for model, backend in RESNETS
        for row in _rows(f"{model} on {backend}", _results(model, backend, "float32"), OURS[:1])
    ]
    chosen = [
        (f"{peer}, {title}", *(_median(results, peer, part) for results in vit.values()))
        for peer in ("keras-hub", "ZeroModels")
        for part, title in (("forward", "forward"), ("training", "training step"))
    ]
    return {
        "performance.md": [
            markdown_table(CHOSEN_COLUMNS, chosen),
            markdown_table(PEER_COLUMNS, all_peers),
            markdown_table(RESNET_COLUMNS, resnets),
        ],
        "serving.md": [_serving_table(model, title) for model, title in SERVED.items()],
    }


def _serving_table(model, title):
    runtimes = json.loads((RESULTS / f"serving-{model}.json").read_text())["runtimes"]
    rows = []
    for name, results in runtimes.items():
        ranges = results["milliseconds"]
        # Such as `openvino int8`.
        own = runtimes.get(f"{name.partition(' ')[0]} float32", results)["milliseconds"]
        ratios = [f"{own[size][0] / ranges[size][0]:.2f}" for size in ("1", "8")]
        cells = ["{:.0f} ({:.0f} to {:.0f})".format(*ranges[size]) for size in ("1", "8")]
        cells += [f"{8000 / ranges['8'][0]:.1f}", "" if own is ranges else ", ".join(ratios)]
        rows.append((name, *cells, f"{results['difference']:.1e}"))
    return markdown_table((title, *SERVING_COLUMNS), rows)


def _rows(label, results, kinds):
    peers = [name for name in results["forward"] if name not in OURS]
    return [(label, peer, *_ratios(results, peer, kinds)) for peer in peers]


def _results(model, backend, dtype):
    return json.loads((RESULTS / f"throughput-{model}-{backend}-{dtype}.json").read_text())


def _ratios(results, peer, kinds):
    """Return the medians and ranges of the forward pass, then of the training step."""
    return [
        "{:.2f} ({:.2f} to {:.2f})".format(*results[part][peer][f"ratio of {kind}"])
        for part in ("forward", "training")
        for kind in kinds
    ]


def _median(results, peer, part):
    if peer not in results[part]:
        return ""
    return f"{results[part][peer]['ratio of keras_vit erf'][0]:.2f}"


def with_table(page, table):
    """Return a page whose table with the same columns is replaced."""
    columns = re.escape(table.splitlines()[0])
    rows = re.compile(rf"^{columns}\n(\|.*\n)+", flags=re.MULTILINE)
    page, count = rows.subn(lambda match: f"{table}\n", page)
    if count != 1:
        raise ValueError(f"A page must have the table once. Received: {count} of {columns}")
    return page


PAGES = {
    "weight_maps.md": weight_maps,
    "support.md": support,
    "catalogue.md": catalogue,
    "recipes.md": recipes,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        pathlib.Path(__file__).with_name(name).write_text(page())
    for name, tables in [*model_tables().items(), *benchmark_tables().items()]:
        path = pathlib.Path(__file__).parent / name
        path.write_text(functools.reduce(with_table, tables, path.read_text()))
