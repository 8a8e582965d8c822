"""Data: registry and download, readers, vocabularies, the toy corpus, batches."""
