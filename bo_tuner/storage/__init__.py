"""Recorded tables and trained priors on disk."""
