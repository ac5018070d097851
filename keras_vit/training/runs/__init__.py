"""Runs in a directory: settings, states to resume from, models, records of the images."""
