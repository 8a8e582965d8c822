"""How similar heads are, and what numbers from a few seeds show."""
