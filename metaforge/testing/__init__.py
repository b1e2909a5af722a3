"""Conformance kit: the laws of the contracts, for built-ins and plugins alike."""
