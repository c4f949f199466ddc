"""Lint of templates: every fault at once, with file and line."""
