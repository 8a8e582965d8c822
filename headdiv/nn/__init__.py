"""The Transformer on packed rows: attention, losses, decoding, and the drop-in for other models."""
