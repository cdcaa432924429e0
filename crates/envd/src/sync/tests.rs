//! A watch and changes from outside, in a real directory.
