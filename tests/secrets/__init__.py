"""No secret is ever read in what a runtime writes, shows or sends: planted in real processes, and searched for in every disguise."""
