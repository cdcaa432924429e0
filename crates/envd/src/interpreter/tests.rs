//! Test doubles for the tests of the interpreter.

pub(super) mod fake;
