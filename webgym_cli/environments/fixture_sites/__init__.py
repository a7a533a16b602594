"""Two local web sites with tasks and experts, to try web environments without a network."""
