"""Position embeddings: added to tokens, rotations of queries and keys, and of offsets."""
