"""Deterministic fault simulation."""
