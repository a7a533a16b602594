"""Imitation dataset: filters, recency-biased sampling, ShareGPT conversion."""
