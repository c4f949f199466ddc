"""Shipped rubric templates: `<task>.<locale>.jinja` over the frame `_geval.jinja`, and examples."""
