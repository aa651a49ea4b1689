"""Predictions for nodes that have no edges yet."""
