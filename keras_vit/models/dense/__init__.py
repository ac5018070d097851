"""Models of dense predictions: maps at several strides, and segmenters."""
