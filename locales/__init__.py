"""One YAML file per language: frame wording, level spellings, column names, report wording."""
