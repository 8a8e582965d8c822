"""What a run reads of its data, by task: the prepared corpora and the streams of training text."""
