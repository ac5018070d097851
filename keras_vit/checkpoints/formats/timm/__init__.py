"""The layouts of timm: one file per class of models."""
