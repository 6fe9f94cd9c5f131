"""One module per kind of component: what it decides, and what it promises (numbered)."""
