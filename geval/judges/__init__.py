"""Judges: one file each over the protocol of `geval.judges.base`."""
