"""Find images that are in two sets."""
