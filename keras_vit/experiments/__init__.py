"""The experiments of the paper as functions."""
