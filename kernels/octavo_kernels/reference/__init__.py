"""Reference kernels in pure torch: slow where they must be, right always."""
