"""Units: a sample judged by its parts, and how their verdicts become one score."""
