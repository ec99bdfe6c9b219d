"""Memory planned before a GPU is booked: per-rank bytes by category, with the formula and source of every term.

Standard library only, so that it runs on a machine with nothing installed; `module` alone needs PyTorch.
"""
