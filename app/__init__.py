"""Berth: the self-service portal of a private AI cloud."""
