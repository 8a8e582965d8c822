"""Scores of summaries and of answers, each with a signature that says how it is counted."""
