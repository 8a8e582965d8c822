"""The Transformers of the papers, their loss and their search for outputs."""
