"""Capabilities of agents, one per module. No capability imports another."""
