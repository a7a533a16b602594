"""Tasks: parsing (also of WebGym's formats), validation, an index with few bytes per task, and sampling."""
