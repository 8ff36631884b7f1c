"""Speed and footprint beside what a module's author would pick instead, in one interleaved run. Only ratios of one run count."""
