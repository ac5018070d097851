"""TFRecord files: a kind of dataset, and how to write them."""
