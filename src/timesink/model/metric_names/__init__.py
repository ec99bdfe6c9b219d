"""Names of Nsight Compute metrics: which chip has which, what replaces the wrong ones, what unit a name implies."""
