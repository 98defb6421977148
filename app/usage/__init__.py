"""Reserved time from events, and what of it was used: intervals, samples, and the split into used, unused, unknown."""
