"""Profiles, papers, runs and their results."""
