"""New plugins: whole distributions, written from templates, one for each kind of component."""
