"""Predictions for many images: a picklable unit of work, and what it is made of."""
