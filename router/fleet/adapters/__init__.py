"""LoRA adapters: which model names mean adapters, and which adapters replicas have in memory."""
