"""Evaluation of segmenters."""
