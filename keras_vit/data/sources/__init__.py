"""Sources of images: folders, CSV files, TFRecord files, TensorFlow Datasets and others."""
