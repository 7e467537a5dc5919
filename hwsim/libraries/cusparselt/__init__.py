"""cuSPARSELt: what it runs for products of a 2:4 sparse A. It knows calls and schedules; no device's name."""
