"""Tests of predictions of many images."""
