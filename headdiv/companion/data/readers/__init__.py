"""Readers of data files: every error names the file and the record, what was found and what is expected."""
