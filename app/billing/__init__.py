"""Money from metered time: charges, statements, the month's report, and how each line comes about."""
