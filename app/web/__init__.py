"""HTTP manners: what every page and answer shares. Knows no room."""
