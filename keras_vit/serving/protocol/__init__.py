"""Requests to a model server and its answers."""
