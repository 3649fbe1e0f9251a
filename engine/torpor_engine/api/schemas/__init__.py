"""Shapes of requests and answers: what is checked on the way in, and what /openapi.json shows."""
