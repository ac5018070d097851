"""The experiments of the paper as functions: VTAB-1k, the studies, and what was reported."""

from keras_vit.core.lazy import make_lazy

# Keras and TensorFlow are imported when one of these is used.
__all__ = make_lazy(
    __name__,
    {
        "keras_vit.experiments.paper.contents": ["paper_table"],
        "keras_vit.experiments.paper.measured": ["measured_tables"],
        "keras_vit.experiments.reported": ["comparison_rows", "find_reported"],
        "keras_vit.experiments.scaling_study": ["scaling"],
        "keras_vit.experiments.seeds": ["train_seeds", "vtab_seeds"],
        "keras_vit.experiments.studies": ["study"],
        "keras_vit.experiments.sweep": ["choose_learning_rate", "sweep"],
        "keras_vit.experiments.trained_model": ["open_trained"],
        "keras_vit.experiments.vtab_run": ["vtab"],
    },
)
