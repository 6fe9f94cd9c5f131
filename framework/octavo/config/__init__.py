"""Configuration: file, flags and keywords become one frozen `ResolvedConfig`."""
