"""Client packages of other systems, unmodified, against a real server; `make clients` installs them."""
