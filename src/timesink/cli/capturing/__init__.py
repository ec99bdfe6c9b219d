"""What capture commands and the loop over them share."""
