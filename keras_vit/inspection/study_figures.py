"""Figures of studies."""

import numpy as np

from keras_vit.inspection.figures import check_matplotlib


def draw_study(accuracies, title, path):
    """Draws the accuracy of each setting: a point for each seed, a bar at their mean.

    Args:
        accuracies: dictionary from the settings' names to lists, from 0 to 1.
        title: of the figure.
        path: of the PNG file to write.

    Raises:
        ValueError: if matplotlib is not installed.
    """
    check_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(1.7 * len(accuracies) + 1.5, 5), 4.5), layout="constrained")
    axis = figure.subplots()
    for place, found in enumerate(accuracies.values()):
        points, mean = 100 * np.array(found), 100 * np.mean(found)
        axis.scatter([place] * len(points), points, s=28, color="tab:blue", alpha=0.7, zorder=2)
        axis.hlines(mean, place - 0.25, place + 0.25, color="black", zorder=3)
        axis.annotate(f"{mean:.1f}", (place + 0.28, mean), va="center", fontsize=9)
    axis.set_xticks(range(len(accuracies)), [name.replace(", ", ",\n") for name in accuracies])
    axis.set_xlim(-0.5, len(accuracies) - 0.2)
    _finish(figure, axis, title, path)


def draw_scaling(exaflops, accuracies, title, path):
    """Draws the accuracy of models against the compute of their training, on a logarithmic axis.

    Args:
        exaflops: dictionary from the models' names to their compute.
        accuracies: dictionary from the models' names to lists, from 0 to 1.
        title: of the figure.
        path: of the PNG file to write.

    Raises:
        ValueError: if matplotlib is not installed.

    Reference:
        Figure 5 of the ViT paper (arXiv 2010.11929).
    """
    check_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axis = figure.subplots()
    for name, found in accuracies.items():
        point = exaflops[name], 100 * np.mean(found)
        axis.scatter(
            [point[0]] * len(found), 100 * np.array(found), s=16, alpha=0.4, color="tab:blue"
        )
        axis.scatter(*point, color="tab:blue")
        axis.annotate(name, point, (7, -3), textcoords="offset points", fontsize=9)
    axis.set_xscale("log")
    # Room for the names.
    axis.margins(x=0.25)
    axis.set_xlabel("Compute of the training (exaFLOPs)")
    _finish(figure, axis, title, path)


def _finish(figure, axis, title, path):
    axis.set_ylabel("Test accuracy (%)")
    axis.set_title(title)
    axis.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
