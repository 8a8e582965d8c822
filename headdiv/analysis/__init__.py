"""How alike heads are, and what numbers from a few seeds say."""
