"""A trace in the formats of other tools: Perfetto's for its browser, tables for spreadsheets and programs, SQL."""
