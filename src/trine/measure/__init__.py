"""This machine's engines and links, measured: machine, timing, probe, calibration."""
