//! Reads settings one by one and collects the mistakes.

use std::fmt::Display;
use std::str::FromStr;

use super::{SETTINGS, Sources};

/// Reads settings and collects mistakes until the end.
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

    /// Reads a setting with `parse`. None is a mistake, which is recorded.
    pub(super) fn with<T>(
        &mut self,
        name: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let (text, place) = self.text_of(name);
        let value = parse(text);
        if value.is_none() {
            self.mistakes
                .push(format!("{place}: {text:?} is not {expected}"));
        }
        value
    }

    /// The text of a setting, and the name of its source.
    fn text_of(&self, name: &str) -> (&'a str, String) {
        if let Some((text, place)) = self.sources.get(name) {
            return (text.trim(), place);
        }
        let default = SETTINGS.iter().find(|setting| setting.name == name);
        (
            default.map_or("", |setting| setting.default),
            name.to_owned(),
        )
    }

    /// Records a mistake in a setting that could be parsed.
    pub(super) fn refuse(&mut self, name: &str, why: impl Display) {
        let (_, place) = self.text_of(name);
        self.mistakes.push(format!("{place}: {why}"));
    }

    /// Reads a setting by `FromStr`.
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

    /// All mistakes.
    pub(super) fn finish(self) -> Vec<String> {
        self.mistakes
    }
}

/// The items of a list separated by commas.
pub(super) fn items(text: &str) -> impl Iterator<Item = &str> {
    let items = text.split(',').map(str::trim);
    items.filter(|item| !item.is_empty())
}

/// Parses a number above zero.
pub(super) fn positive(text: &str) -> Option<usize> {
    text.parse().ok().filter(|number| *number > 0)
}
