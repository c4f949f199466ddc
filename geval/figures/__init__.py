"""The parts of `geval.numbers`: how figures are written in Korean and English text."""
