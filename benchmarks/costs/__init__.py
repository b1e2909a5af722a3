"""A model of what large runs cost."""
