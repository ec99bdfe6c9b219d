"""The changes that people make: one table of fixes (`table`), what a row says (`fix`), and fixes in words (`words`)."""
