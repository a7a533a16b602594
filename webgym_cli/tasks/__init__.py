"""Tasks: read from files in WebGym's shapes, checked line by line, indexed and drawn without holding them all."""
