"""How well a run matches people: labels, statistics, ceilings, and what people would have said."""
