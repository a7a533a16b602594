"""Tests of the environment server."""
