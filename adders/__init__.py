"""Timesteps in, replay items out."""
