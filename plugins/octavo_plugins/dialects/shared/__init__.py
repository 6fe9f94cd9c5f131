"""What all dialects do alike: bodies and their unknown fields, calls, streams that end well."""
