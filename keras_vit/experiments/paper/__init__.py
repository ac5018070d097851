"""The tables and figures of the ViT paper (arXiv 2010.11929) as rows, next to ours."""
