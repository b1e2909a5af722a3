"""Faults injected into runs: what machines and people do to them, and what comes of it."""
