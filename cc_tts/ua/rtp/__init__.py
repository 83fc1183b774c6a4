"""RTP functions beside PJMEDIA: the audio port, codecs, keys, reports, ports."""
