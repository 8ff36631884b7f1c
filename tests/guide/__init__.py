"""Tests that the guide's examples do what the guide says."""
