"""Runs: the folder of a scoring, its lines, sums and gate."""
