"""Tests of the recording gateway."""
