"""The host: brings its machine to the declaration it was given, guards it, and reports what it found."""
