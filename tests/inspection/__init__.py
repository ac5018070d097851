"""Tests of what a model sees."""
