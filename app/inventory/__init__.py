"""Clusters, their nodes and units, accelerator kinds, pools and what is seen of all of them."""
