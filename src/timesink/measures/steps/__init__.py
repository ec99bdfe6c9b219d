"""Steps: where they begin and end, what each is made of, and which stand out."""
