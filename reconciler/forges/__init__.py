"""Forges: where repositories have pages, pull requests and comments."""
