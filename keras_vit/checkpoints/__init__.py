"""Checkpoints: the table of those that are published, and reading and writing their files."""

from keras_vit.core.lazy import make_lazy

__all__ = make_lazy(
    __name__,
    {
        "keras_vit.checkpoints.catalog": ["Checkpoint", "find_checkpoint", "list_checkpoints"],
        "keras_vit.checkpoints.catalog.augreg": ["AugRegFile", "parse_augreg"],
        "keras_vit.checkpoints.catalog.card": ["model_card"],
        "keras_vit.checkpoints.catalog.push": ["push_to_hub"],
        "keras_vit.checkpoints.keras_hub": ["from_keras_hub", "to_keras_hub"],
        "keras_vit.checkpoints.load": ["from_checkpoint", "load_checkpoint"],
        "keras_vit.checkpoints.save": ["save_checkpoint"],
        "keras_vit.checkpoints.summary": ["Summary", "inspect_checkpoint"],
    },
)
