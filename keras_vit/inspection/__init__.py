"""Inspection: analyses and figures of what a model has learned and attends to."""
