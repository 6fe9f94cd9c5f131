"""What op sets and attention back ends over the CPU kernels share; no component of its own."""
