"""Writing templates: drafts, steps, saving, diff, import from other tools, the catalogue."""
