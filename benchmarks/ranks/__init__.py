"""Many ranks: programs with one planted fault each, for a few GPUs, and speed and scale on generated traces."""
