"""The engine's Vulkan against the real backend, on whatever Vulkan driver there is: Mesa's llvmpipe needs no GPU."""
