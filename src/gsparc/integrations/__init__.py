"""Other libraries: each file needs its own extra, so import the one that is wanted."""
