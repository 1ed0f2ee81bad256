"""Bench: measurements of this machine, beside other libraries (`gristmill bench`)."""
