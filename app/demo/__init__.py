"""A small company to look at: made by the product's own verbs on a stepped clock. A composition root; nobody knows it."""
