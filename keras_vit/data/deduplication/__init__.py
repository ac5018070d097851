"""Find duplicates: training images that are also in a test set, and copies within one set."""
