"""What is measured, one module each, with the figures in the module's docstring explained. Run: `python -m benchmarks`.

A benchmark is a module of this package with `NAME: str` and `run(size: str = "full") -> dict[str, float]`. The keys of
the figures end in their unit (`_ms`, `_per_s`, `_mb`, `_s`) or in `_ratio`; what is not measured but given (how many
holds) has no such ending. `size` is "full", or "small" for a quick look and for tests.
"""
