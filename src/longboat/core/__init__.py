"""Values and pure rules. No I/O, no clock, no import of another Longboat package."""
