"""Events to clients: their types, their numbers, how long they are kept, and who reads them."""
