"""ObjectNet, a test set of objects in unusual views, with labels of ImageNet."""
