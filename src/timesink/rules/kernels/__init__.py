"""Rules about the kernels of a step, as a timeline shows them."""
