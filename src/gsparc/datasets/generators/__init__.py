"""Attributed graphs made to order, whose structure is known exactly."""
