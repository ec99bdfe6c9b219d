"""The sixth set: jobs of two GPUs written with what libraries offer, seen by nobody before a diagnosis."""
