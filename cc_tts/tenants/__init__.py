"""Those who share a server: what each of them uses, may use, and is charged for."""
