"""Readers of file formats that several kinds share. No components: these are libraries."""
