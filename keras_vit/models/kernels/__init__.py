"""Kernels with low-rank adapters (LoRA), quantized kernels, and plain or folded ones."""
