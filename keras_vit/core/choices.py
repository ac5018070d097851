"""Choices that several folders offer."""

# Of a model that returns one vector per image; None returns all tokens.
POOLINGS = ("token", "gap", "map")
POSITION_EMBEDDINGS = ("learned", "learned2d", "sincos2d", "none")
# Of masked patch prediction.
TARGETS = ("mean_colour", "downsized", "pixels")
