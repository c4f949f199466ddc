"""Bridges to other tools, one file each over the public API."""
