"""What a program with a loop of its own may call; it is put on the program's path, not imported here."""
