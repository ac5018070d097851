"""The layouts of Hugging Face transformers, one file per kind of model."""
