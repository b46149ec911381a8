"""How each table is recorded, by what it is recorded from."""
