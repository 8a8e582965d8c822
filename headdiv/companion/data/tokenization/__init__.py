"""Text to tokens and back: Moses and spaCy words, subwords, byte-level byte-pair encoding, answer spans."""
