"""Data sets: registry and download, readers, tokenization, toy corpora, and the corpora of each task."""
