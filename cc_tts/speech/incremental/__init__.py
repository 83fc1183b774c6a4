"""Text that is spoken while it still arrives."""
