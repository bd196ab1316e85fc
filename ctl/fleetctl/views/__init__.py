"""How values read: texts, columns and tables, defined once for every face."""
