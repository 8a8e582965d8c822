"""The toy corpora of the three tasks beside translation, and the version of their text."""

from headdiv.data.toy_documents import articles, questions
from headdiv.data.toy_shards import write_shards

__all__ = ["VERSION", "articles", "questions", "write_shards"]

VERSION = 1  # raise whenever the generated text changes: it enters the hash of prepared data
