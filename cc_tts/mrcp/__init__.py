"""MRCPv2 (RFC 6787): the resource ``speechsynth``, in a process of its own, and the server's side of that process."""
