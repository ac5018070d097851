"""Predictions past one process: files in parts, Ray and Spark."""
