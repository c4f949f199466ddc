"""Rendering: the sandbox of Jinja, its filters, and the fence round judged text."""
