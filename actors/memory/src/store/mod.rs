//! Stores: they find what memories and conversations say about a text.
