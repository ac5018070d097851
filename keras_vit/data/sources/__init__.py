"""What images are read from: folders, TFRecord files, TensorFlow Datasets, digits."""
