"""End-to-end scenarios on real processes and a real broker: `python -m beds run NAME`."""
