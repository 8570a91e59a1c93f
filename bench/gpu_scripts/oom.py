"""Asks for more GPU memory than there is."""

import torch

print("begins", flush=True)
held = [torch.zeros(1 << 33, dtype=torch.uint8, device="cuda") for _ in range(64)]
