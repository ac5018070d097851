"""Lines that `keras-vit train` prints about its runs."""


def describe_fewshot(row):
    """Describe the few-shot accuracies of a measurement."""
    shown = []
    for name, mean in row.items():
        if name == "step" or name.endswith("_std"):
            continue
        spread = row.get(f"{name}_std")
        shots = name.removeprefix("fewshot_").removesuffix("shot")
        deviation = "" if spread is None else f" ± {spread:.2%}"
        shown.append(f"{shots}-shot accuracy {mean:.2%}{deviation}")
    return f"After {row['step']} steps: {', '.join(shown)}"


def describe_best(history, monitor=None):
    """Describe the best epoch by the metric that selects it."""
    from keras_vit.experiments.seeds import best_of

    metric, best = best_of(history, monitor)
    if metric is None:
        return f"Trained for {len(history)} epoch{'' if len(history) == 1 else 's'}"
    return f"Best {_named(metric)} {best:{_format_of(metric)}}"


def describe_seeds(results):
    """Describe mean and standard deviation of `SeedResults`."""
    count = len(results.values)
    if results.metric is None:
        return f"Trained {count} models, without validation"
    style = _format_of(results.metric)
    deviation = "" if results.std is None else f" ± {results.std:{style}}"
    name = _named(results.metric)
    return f"Best {name} of {count} seeds: {results.mean:{style}}{deviation}"


def _named(metric):
    return metric.replace("val_", "validation ").replace("_", " ")


def _format_of(metric):
    return ".2%" if "accuracy" in metric else ".4f"
