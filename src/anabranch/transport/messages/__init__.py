"""Every message between lanes, the coordinator and workers: a module for each conversation."""
