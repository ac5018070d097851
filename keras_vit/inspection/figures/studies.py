"""Figures of studies."""

import re

import numpy as np

from keras_vit.inspection.figures.drawing import new_figure, save_figure


def short_names(names):
    """Return a dictionary from names to labels, without the sizes in parentheses.

    Names that differ in these sizes alone stay whole.

    Example:
    >>> list(short_names(["ViT_Ti16(depth=6), none", "ViT_Ti16(depth=6), 1-D"]).values())
    ['ViT_Ti16(...), none', 'ViT_Ti16(...), 1-D']
    """
    short = {name: re.sub(r"\(.*\)", "(...)", name) for name in names}
    return short if len({*short.values()}) == len(short) else {name: name for name in names}


def draw_study(panels, title, path):
    """Draw the accuracy of each setting: one point per seed, and a bar at their mean.

    Args:
        panels: dictionary from names of panels, drawn above each other, to dictionaries from names
            of settings to lists of accuracies, from 0 to 1, or of `None`, which is not drawn.
        title: title of the figure.
        path: path of the PNG file to write.

    Raises:
        ValueError: if matplotlib is not installed.
    """
    settings = next(iter(panels.values()))
    width = max(1.7 * len(settings) + 1.5, 5)
    figure = new_figure(width, 0.6 + 3.9 * len(panels))
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axis, (name, accuracies) in zip(axes, panels.items(), strict=True):
        for place, found in enumerate(accuracies.values()):
            if None not in found:
                _draw_seeds(axis, place, 100 * np.array(found))
        axis.set_ylabel(name)
        axis.grid(alpha=0.3)
    axes[-1].set_xticks(range(len(settings)), [name.replace(", ", ",\n") for name in settings])
    axes[-1].set_xlim(-0.5, len(settings) - 0.2)
    axes[0].set_title(title)
    save_figure(figure, path)


def _draw_seeds(axis, place, points):
    """Draw the results of several seeds above each other, and their mean."""
    mean = np.mean(points)
    axis.scatter([place] * len(points), points, s=28, color="tab:blue", alpha=0.7, zorder=2)
    axis.hlines(mean, place - 0.25, place + 0.25, color="black", zorder=3)
    axis.annotate(f"{mean:.1f}", (place + 0.28, mean), va="center", fontsize=9)


def draw_scaling(exaflops, accuracies, title, path, label="Test accuracy (%)"):
    """Draw the accuracy of models by the compute of their training, on a logarithmic axis.

    Args:
        exaflops: dictionary from names of models to their compute in exaFLOPs.
        accuracies: dictionary from names of models to lists of accuracies, from 0 to 1.
        title: title of the figure.
        path: path of the PNG file to write.
        label: name of the accuracy.

    Raises:
        ValueError: if matplotlib is not installed.

    Reference:
        Figure 5 of the ViT paper (arXiv 2010.11929).
    """
    axis = new_figure(8, 5).subplots()
    for name, found in accuracies.items():
        points, point = 100 * np.array(found), (exaflops[name], 100 * np.mean(found))
        axis.scatter([point[0]] * len(found), points, s=16, alpha=0.4, color="tab:blue")
        axis.scatter(*point, color="tab:blue")
        # Labels are on the side towards the middle.
        is_right = point[0] ** 2 > min(exaflops.values()) * max(exaflops.values())
        options = {"ha": "right" if is_right else "left", "textcoords": "offset points"}
        axis.annotate(name, point, (-7 if is_right else 7, -3), fontsize=9, **options)
    axis.set_xscale("log")
    axis.margins(x=0.1)
    axis.set(xlabel="Compute of the training (exaFLOPs)", ylabel=label, title=title)
    axis.grid(alpha=0.3)
    save_figure(axis.figure, path)


def draw_data_sizes(rows, panels, title, path):
    """Draw accuracies by the number of training images, one line per model.

    Args:
        rows: dictionaries with `model`, `images` and the panels' columns, which are from 0 to 1;
            one per seed.
        panels: dictionary from names of panels to their columns.
        title: title of the figure.
        path: path of the PNG file to write.

    Raises:
        ValueError: if matplotlib is not installed.

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
    found = {}
    for row in rows:
        found.setdefault(row["images"], []).append(100 * row[column])
    sizes = sorted(found)
    (line,) = axis.plot(sizes, [np.mean(found[size]) for size in sizes], label=label)
    points = [(size, value) for size in sizes for value in found[size]]
    axis.scatter(*zip(*points, strict=True), s=16, alpha=0.5, color=line.get_color())
