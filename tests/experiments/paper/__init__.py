"""Tests of the rows of the paper."""
