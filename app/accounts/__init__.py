"""Tenants, projects, people and their roles: sign-in, sessions, API tokens, and the record of who did what."""
