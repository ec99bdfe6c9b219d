"""Take out of captures what names people, machines and secrets."""
