"""Tuning a template against human labels."""
