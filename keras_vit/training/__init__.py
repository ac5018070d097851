"""Training by recipes, through `model.fit`."""
