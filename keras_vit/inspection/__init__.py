"""What a model sees."""
