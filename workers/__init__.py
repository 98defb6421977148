"""Background processes: thin tasks over the rooms' use cases."""
