"""Duplicates: training images that are in a test set, too."""
