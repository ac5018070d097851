"""Draw charts of results: confusion matrices, costs by image size, and studies."""

import re

import numpy as np

from keras_vit.inspection.figures.drawing import new_figure, save_figure, shortened

# Up to this number of classes, all of them are named.
NAMED = 40
# Up to this number of classes, the cells show the numbers of images.
NUMBERED = 20
LONGEST_NAME = 24


def draw_confusion(matrix, class_names, path):
    """Draw a confusion matrix: one row per class, one column per predicted class.

    Colors show the shares of the images of a class. With up to 20 classes, the cells also show
    numbers of images. With more than 40 classes, only some names are shown.

    Args:
        matrix: integers `(classes, classes)` from `keras_vit.evaluation.metrics.confusion_matrix`.
        class_names: list of the names of the classes.
        path: path of the PNG file to write.
    """
    from matplotlib.colors import PowerNorm

    side = 3.5 + 0.22 * min(max(len(class_names), 10), 2 * NAMED)
    axis = new_figure(side + 1, side).subplots()
    # Divide the row of a class without images by 1, not by 0.
    shares = 100 * matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    # On a scale of square roots, mistakes of a few percent are visible.
    drawn = axis.imshow(shares, cmap="Blues", norm=PowerNorm(0.5, vmin=0, vmax=100))
    step = -(-len(class_names) // NAMED)
    ticks = np.arange(0, len(class_names), step)
    names = [shortened(class_names[tick], LONGEST_NAME) for tick in ticks]
    axis.set_xticks(ticks, names, rotation=90, fontsize=8)
    axis.set_yticks(ticks, names, fontsize=8)
    accuracy = np.trace(matrix) / max(matrix.sum(), 1)
    axis.set(xlabel="predicted class", ylabel="class")
    axis.set_title(f"Accuracy {accuracy:.1%} of {matrix.sum()} images")
    if len(class_names) <= NUMBERED:
        for row, column in np.argwhere(matrix):
            style = {"fontsize": 7, "color": "white" if shares[row, column] > 30 else "black"}
            axis.text(column, row, f"{matrix[row, column]}", ha="center", va="center", **style)
    bar = axis.figure.colorbar(drawn, ticks=[0, 1, 5, 10, 20, 40, 60, 80, 100], shrink=0.8)
    bar.set_label("share of the class's images (%)")
    save_figure(axis.figure, path)


def draw_costs(costs, path):
    """Draw images per second and largest batch against image size, one line per model and task.

    Args:
        costs: list of `keras_vit.experiments.benchmark.Cost`.
        path: path of the PNG file to write.

    Reference:
        Figure 12 of the ViT paper (arXiv 2010.11929).
    """
    figure = new_figure(11, 4.5)
    speed, memory = figure.subplots(1, 2)
    for model, task in dict.fromkeys((cost.model, cost.task) for cost in costs):
        line = [cost for cost in costs if (cost.model, cost.task) == (model, task)]
        label = f"{model}, {task}"
        measured = [cost for cost in line if cost.points]
        sizes = [cost.image_size for cost in measured]
        speed.plot(sizes, [cost.best[1] for cost in measured], "o-", label=label)
        # A logarithmic axis cannot show 0.
        fitting = [cost for cost in line if cost.largest_batch]
        sizes = [cost.image_size for cost in fitting]
        memory.plot(sizes, [cost.largest_batch for cost in fitting], "o-", label=label)
    for axis, name in ((speed, "Images per second"), (memory, "Largest batch")):
        axis.set(xlabel="Image size (pixels)", ylabel=name, yscale="log")
        axis.set_xticks(sorted({cost.image_size for cost in costs}))
        axis.grid(alpha=0.3, which="both")
    speed.legend()
    save_figure(figure, path)


def short_labels(names):
    """Return a dictionary from names to labels in which "..." replaces the sizes in parentheses.

    If two labels would be equal, all names are kept whole.

    Example:
    >>> list(short_labels(["ViT_Ti16(depth=6), none", "ViT_Ti16(depth=6), 1-D"]).values())
    ['ViT_Ti16(...), none', 'ViT_Ti16(...), 1-D']
    """
    short = {name: re.sub(r"\(.*\)", "(...)", name) for name in names}
    return short if len({*short.values()}) == len(short) else {name: name for name in names}


def draw_study(panels, title, path):
    """Draw the accuracy of each setting: one point per seed, and a bar at their mean.

    Args:
        panels: dictionary of dictionaries: `panels[panel][setting]` is a list of accuracies from 0
            to 1, one per seed. A list with `None` is not drawn.
        title: title of the figure.
        path: path of the PNG file to write.
    """
    settings = next(iter(panels.values()))
    width = max(1.7 * len(settings) + 1.5, 5)
    figure = new_figure(width, 0.6 + 3.9 * len(panels))
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axis, (name, accuracies) in zip(axes, panels.items(), strict=True):
        for position, values in enumerate(accuracies.values()):
            if None not in values:
                _draw_seeds(axis, position, 100 * np.array(values))
        axis.set_ylabel(name)
        axis.grid(alpha=0.3)
    axes[-1].set_xticks(range(len(settings)), [name.replace(", ", ",\n") for name in settings])
    axes[-1].set_xlim(-0.5, len(settings) - 0.2)
    axes[0].set_title(title)
    save_figure(figure, path)


def _draw_seeds(axis, x, points):
    """Draw the results of several seeds above each other, and their mean."""
    mean = np.mean(points)
    axis.scatter([x] * len(points), points, s=28, color="tab:blue", alpha=0.7, zorder=2)
    axis.hlines(mean, x - 0.25, x + 0.25, color="black", zorder=3)
    axis.annotate(f"{mean:.1f}", (x + 0.28, mean), va="center", fontsize=9)


def draw_scaling(exaflops, accuracies, title, path, label="Test accuracy (%)"):
    """Draw the accuracy of models against the compute of their training, on a logarithmic axis.

    Args:
        exaflops: dictionary from names of models to their compute in exaFLOPs.
        accuracies: dictionary from names of models to lists of accuracies, from 0 to 1.
        title: title of the figure.
        path: path of the PNG file to write.
        label: label of the axis of accuracies.

    Reference:
        Figure 5 of the ViT paper (arXiv 2010.11929).
    """
    axis = new_figure(8, 5).subplots()
    for name, values in accuracies.items():
        points, mean = 100 * np.array(values), (exaflops[name], 100 * np.mean(values))
        axis.scatter([mean[0]] * len(values), points, s=16, alpha=0.4, color="tab:blue")
        axis.scatter(*mean, color="tab:blue")
        # Write each label on the side towards the middle of the axis.
        is_right = mean[0] ** 2 > min(exaflops.values()) * max(exaflops.values())
        options = {"ha": "right" if is_right else "left", "textcoords": "offset points"}
        axis.annotate(name, mean, (-7 if is_right else 7, -3), fontsize=9, **options)
    axis.set_xscale("log")
    axis.margins(x=0.1)
    axis.set(xlabel="Compute of the training (exaFLOPs)", ylabel=label, title=title)
    axis.grid(alpha=0.3)
    save_figure(axis.figure, path)


def draw_data_sizes(rows, panels, title, path):
    """Draw accuracies against the number of training images, one line per model.

    Args:
        rows: list of dictionaries, one per training run: `model`, `images` (the number of training
            images), and accuracies from 0 to 1.
        panels: dictionary from names of panels to keys of the accuracies in `rows`.
        title: title of the figure.
        path: path of the PNG file to write.

    Reference:
        Figure 4 of the ViT paper (arXiv 2010.11929).
    """
    figure = new_figure(5 * len(panels), 4.5)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (name, column) in zip(axes, panels.items(), strict=True):
        for model in dict.fromkeys(row["model"] for row in rows):
            _draw_line(axis, [row for row in rows if row["model"] == model], column, model)
        sizes = sorted({row["images"] for row in rows})
        axis.set_xscale("log")
        axis.set_xticks(sizes, [f"{size:,.0f}" for size in sizes], rotation=30, ha="right")
        axis.minorticks_off()
        axis.set(xlabel="Training images", ylabel=name)
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.suptitle(title)
    save_figure(figure, path)


def _draw_line(axis, rows, column, label):
    """Draw a point for each row, and a line through the means."""
    accuracies = {}
    for row in rows:
        accuracies.setdefault(row["images"], []).append(100 * row[column])
    sizes = sorted(accuracies)
    (line,) = axis.plot(sizes, [np.mean(accuracies[size]) for size in sizes], label=label)
    points = [(size, value) for size in sizes for value in accuracies[size]]
    axis.scatter(*zip(*points, strict=True), s=16, alpha=0.5, color=line.get_color())
