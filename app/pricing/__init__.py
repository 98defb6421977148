"""What a unit-hour costs: versions of price books, immutable once published, and what a window costs by them."""
