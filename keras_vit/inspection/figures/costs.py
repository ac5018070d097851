"""The figure of speed and memory by image size."""

from keras_vit.inspection.figures.drawing import new_figure, save_figure


def draw_costs(costs, path):
    """Draw images per second and the largest batch by the image size, one line per model and task.

    Args:
        costs: list of `keras_vit.experiments.benchmark.Cost`.
        path: path of the PNG file to write.

    Raises:
        ValueError: if matplotlib is not installed.

    Reference:
        Figure 12 of the ViT paper (arXiv 2010.11929).
    """
    figure = new_figure(11, 4.5)
    speed, memory = figure.subplots(1, 2)
    for model, task in dict.fromkeys((cost.model, cost.task) for cost in costs):
        found = [cost for cost in costs if (cost.model, cost.task) == (model, task)]
        label = f"{model}, {task}"
        measured = [cost for cost in found if cost.points]
        sizes = [cost.image_size for cost in measured]
        speed.plot(sizes, [cost.best[1] for cost in measured], "o-", label=label)
        # The axis has no place for 0.
        known = [cost for cost in found if cost.largest_batch]
        sizes = [cost.image_size for cost in known]
        memory.plot(sizes, [cost.largest_batch for cost in known], "o-", label=label)
    for axis, name in ((speed, "Images per second"), (memory, "Largest batch")):
        axis.set(xlabel="Image size (pixels)", ylabel=name, yscale="log")
        axis.set_xticks(sorted({cost.image_size for cost in costs}))
        axis.grid(alpha=0.3, which="both")
    speed.legend()
    save_figure(figure, path)
