//! Which variables an instruction sees.

use std::collections::BTreeMap;

/// What is known of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known<'a> {
    /// Its value.
    Value(&'a str),
    /// It was declared and has none.
    Unset,
    /// Only the server knows: the image may set it, or its value holds what the image sets.
    Elsewhere,
}

/// The variables of a stage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Scope {
    /// Of `ARG`; none is one that was declared without a value.
    args: BTreeMap<String, Option<Value>>,
    /// Of `ENV`, which win.
    env: BTreeMap<String, Value>,
}

/// The value of a variable; none where only the server knows it.
pub(super) type Value = Option<String>;

impl Scope {
    pub(super) fn look(&self, name: &str) -> Known<'_> {
        if let Some(value) = self.env.get(name) {
            return value.as_deref().map_or(Known::Elsewhere, Known::Value);
        }
        match self.args.get(name) {
            Some(Some(value)) => value.as_deref().map_or(Known::Elsewhere, Known::Value),
            Some(None) => Known::Unset,
            None => Known::Elsewhere,
        }
    }

    /// Whether an `ENV` hides an `ARG` of the name.
    pub(super) fn has_env(&self, name: &str) -> bool {
        self.env.contains_key(name)
    }

    /// The names that `ENV` has set, here or in the stage below.
    pub(super) fn env_names(&self) -> Vec<String> {
        self.env.keys().cloned().collect()
    }

    pub(super) fn set_env(&mut self, name: String, value: Value) {
        self.env.insert(name, value);
    }

    /// Declares an argument, perhaps with a value.
    pub(super) fn set_arg(&mut self, name: String, value: Option<Value>) {
        self.args.insert(name, value);
    }

    /// The value of an argument, if one was declared and has one.
    pub(super) fn arg(&self, name: &str) -> Option<&Value> {
        self.args.get(name)?.as_ref()
    }

    /// What a stage that stands on this one begins with: arguments end with their stage.
    pub(super) fn inherited(&self) -> Self {
        Self {
            args: BTreeMap::new(),
            env: self.env.clone(),
        }
    }
}
