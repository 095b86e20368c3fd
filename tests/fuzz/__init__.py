"""Random models, and what must hold for the copies of each."""
