"""Predict many images with several processes or machines, on Ray or on Spark."""
