"""Tests of the library, and of what crosses modules."""
