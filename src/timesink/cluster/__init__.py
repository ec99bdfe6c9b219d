"""Many ranks: one file at a time becomes a small `Job`, and the jobs become one; on one machine or on a cluster."""
