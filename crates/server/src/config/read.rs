//! Reads settings one by one and remembers what was wrong with each.

use std::fmt::Display;
use std::str::FromStr;

use super::{SETTINGS, Sources};

/// Reads from sources; every mistake is kept until the end.
pub(super) struct Reader<'a> {
    sources: &'a Sources,
    mistakes: Vec<String>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(sources: &'a Sources) -> Self {
        Self {
            sources,
            mistakes: sources.mistakes.clone(),
        }
    }

    /// Reads a setting with `parse`; none is a mistake, and has been noted.
    pub(super) fn with<T>(
        &mut self,
        name: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let (text, place) = self.said(name);
        let value = parse(text);
        if value.is_none() {
            self.mistakes
                .push(format!("{place}: {text:?} is not {expected}"));
        }
        value
    }

    /// The text of a setting, and how to name where it was said.
    fn said(&self, name: &str) -> (&'a str, String) {
        if let Some((text, place)) = self.sources.get(name) {
            return (text.trim(), place);
        }
        let default = SETTINGS.iter().find(|setting| setting.name == name);
        (
            default.map_or("", |setting| setting.default),
            name.to_owned(),
        )
    }

    /// Notes what is wrong with a setting that could be read.
    pub(super) fn refuse(&mut self, name: &str, why: impl Display) {
        let (_, place) = self.said(name);
        self.mistakes.push(format!("{place}: {why}"));
    }

    /// Reads a setting that knows how to be read.
    pub(super) fn parse<T: FromStr>(&mut self, name: &str, expected: &str) -> Option<T> {
        self.with(name, expected, |text| {
            text.parse().ok().filter(|_| !text.is_empty())
        })
    }

    /// Reads a setting that may be empty.
    pub(super) fn optional<T>(
        &mut self,
        name: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<Option<T>> {
        self.with(name, expected, |text| {
            if text.is_empty() {
                Some(None)
            } else {
                parse(text).map(Some)
            }
        })
    }

    /// Everything that was wrong.
    pub(super) fn finish(self) -> Vec<String> {
        self.mistakes
    }
}
