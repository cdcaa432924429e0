//! The variables that an instruction sees.

use std::collections::BTreeMap;

/// The state of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known<'a> {
    /// Its value.
    Value(&'a str),
    /// Declared without a value.
    Unset,
    /// Known only to the server: the image may set it, or its value refers to a variable of the
    /// image.
    Elsewhere,
}

/// The variables of a stage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Scope {
    /// Those of `ARG`; `None` if declared without a value.
    args: BTreeMap<String, Option<Value>>,
    /// Those of `ENV`, which take precedence.
    env: BTreeMap<String, Value>,
}

/// The value of a variable; `None` if only the server knows it.
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

    /// Whether an `ENV` hides an `ARG` of the same name.
    pub(super) fn has_env(&self, name: &str) -> bool {
        self.env.contains_key(name)
    }

    /// The names that `ENV` sets, here or in the base stage.
    pub(super) fn env_names(&self) -> Vec<String> {
        self.env.keys().cloned().collect()
    }

    pub(super) fn set_env(&mut self, name: String, value: Value) {
        self.env.insert(name, value);
    }

    /// Declares an argument, optionally with a value.
    pub(super) fn set_arg(&mut self, name: String, value: Option<Value>) {
        self.args.insert(name, value);
    }

    /// The value of an argument, if it is declared and set.
    pub(super) fn arg(&self, name: &str) -> Option<&Value> {
        self.args.get(name)?.as_ref()
    }

    /// The initial variables of a stage based on this one: arguments end with their stage.
    pub(super) fn inherited(&self) -> Self {
        Self {
            args: BTreeMap::new(),
            env: self.env.clone(),
        }
    }
}
