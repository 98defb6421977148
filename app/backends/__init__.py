"""Adapters to clusters. A concrete backend imports `contract` and the kernel, and knows nothing of the portal."""
