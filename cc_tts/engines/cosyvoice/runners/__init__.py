"""The networks in batches on one device."""
