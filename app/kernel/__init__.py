"""The words every room shares: time, windows, money, ids, actors, errors. Standard library only, no input or output."""
