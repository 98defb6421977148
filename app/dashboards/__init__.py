"""Pages that join rooms, for reading: home, timeline, project."""
