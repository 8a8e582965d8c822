"""Generated corpora of every task, for the quick profile and the tests."""

VERSION = 2  # raise it whenever the generated text changes: it enters the hash of prepared data
