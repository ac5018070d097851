"""Models of training runs: their directories, and what their files record."""
