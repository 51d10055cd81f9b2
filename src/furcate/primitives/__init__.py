"""Frozen values and pure functions on them; everything else in the package stands on these."""
