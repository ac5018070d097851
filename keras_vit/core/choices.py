"""Values of options that several folders check."""

# Poolings to one vector per image. `vision_transformer` also takes None, for all tokens.
POOLINGS = ("token", "gap", "map")
POSITION_EMBEDDINGS = ("learned", "learned2d", "sincos2d", "none")
# Attention by the backend's fused operation where that is faster, or always by products with the
# scores.
ATTENTION_PATHS = ("fused", "explicit")
# Targets of masked patch prediction.
TARGETS = ("mean_colour", "downsized", "pixels")
