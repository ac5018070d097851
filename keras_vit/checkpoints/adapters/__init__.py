"""Files of LoRA adapters: the matrices of LoRA and the head, without the base."""
