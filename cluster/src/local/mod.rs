//! One process, one directory: a write-ahead log as truth, sled as a rebuildable index.
