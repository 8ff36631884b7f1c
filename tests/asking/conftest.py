"""What every test here sees of what the library said."""

from tests.records import _nothing_that_only_the_loop_heard_of, records

__all__ = ["_nothing_that_only_the_loop_heard_of", "records"]
