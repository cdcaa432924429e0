//! Listing the sandboxes of a team, a page at a time.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::auth::Principal;
use crate::clock::Timestamp;
use crate::id::{SandboxId, TemplateId};
use crate::sandbox::SandboxRecord;
use crate::state::StateKind;

/// The order of a list, by start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ListOrder {
    /// The oldest first.
    Ascending,
    /// The newest first.
    #[default]
    Descending,
}

/// Where the next page begins: after this sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageToken {
    started_at: Timestamp,
    id: SandboxId,
    order: ListOrder,
}

impl PageToken {
    /// The order of the list that it continues.
    #[must_use]
    pub fn order(&self) -> ListOrder {
        self.order
    }
}

/// A text that is not a page token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid next token")]
pub struct InvalidPageToken;

impl fmt::Display for PageToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = if self.order == ListOrder::Ascending {
            "a"
        } else {
            "d"
        };
        write!(f, "{order}{}-{}", self.started_at.unix_millis(), self.id)
    }
}

impl FromStr for PageToken {
    type Err = InvalidPageToken;

    fn from_str(text: &str) -> Result<Self, InvalidPageToken> {
        let order = match text.chars().next() {
            Some('a') => ListOrder::Ascending,
            Some('d') => ListOrder::Descending,
            _ => return Err(InvalidPageToken),
        };
        let (millis, id) = text[1..].split_once('-').ok_or(InvalidPageToken)?;
        Ok(Self {
            started_at: Timestamp::from_unix_millis(millis.parse().map_err(|_| InvalidPageToken)?),
            id: id.parse().map_err(|_| InvalidPageToken)?,
            order,
        })
    }
}

/// Which sandboxes to list, and how many.
#[derive(Debug, Clone, Default)]
pub struct ListFilter {
    /// Only those with all of these labels.
    pub metadata: BTreeMap<String, String>,
    /// Whether running ones are listed.
    pub running: bool,
    /// Whether paused ones are listed.
    pub paused: bool,
    /// Only those that were started then or later.
    pub started_after: Option<Timestamp>,
    /// Only those of this template.
    pub template: Option<TemplateId>,
    /// The order.
    pub order: ListOrder,
    /// The most sandboxes on the page.
    pub limit: usize,
    /// The page token that the last page ended with.
    pub after: Option<PageToken>,
    /// Whether those of all teams are listed; counts for admin keys only.
    pub all_teams: bool,
}

/// The fields by which lists select and sort. A backend that converts its objects to records converts those of the page only.
pub trait Listed {
    /// When it was started.
    fn started_at(&self) -> Timestamp;
    /// Its id.
    fn id(&self) -> &SandboxId;
    /// Its state.
    fn state(&self) -> StateKind;
    /// Whether users see it.
    fn is_user_visible(&self) -> bool;
    /// Whether its metadata has all of these pairs.
    fn has_metadata(&self, wanted: &BTreeMap<String, String>) -> bool;
    /// Whether it is of this template.
    fn is_of(&self, template: &TemplateId) -> bool;
}

impl Listed for Arc<SandboxRecord> {
    fn started_at(&self) -> Timestamp {
        self.started_at
    }

    fn id(&self) -> &SandboxId {
        &self.id
    }

    fn state(&self) -> StateKind {
        self.state.kind()
    }

    fn is_user_visible(&self) -> bool {
        SandboxRecord::is_user_visible(self)
    }

    fn has_metadata(&self, wanted: &BTreeMap<String, String>) -> bool {
        let own = &self.spec.metadata;
        wanted
            .iter()
            .all(|(key, value)| own.get(key) == Some(value))
    }

    fn is_of(&self, template: &TemplateId) -> bool {
        self.spec.template == *template
    }
}

/// A page of a list.
#[derive(Debug, Clone)]
pub struct Page<T = Arc<SandboxRecord>> {
    /// The sandboxes.
    pub sandboxes: Vec<T>,
    /// Where the next page begins; none when this is the last.
    pub next: Option<PageToken>,
    /// The number of running sandboxes that match, on all pages.
    pub running: usize,
}

impl ListFilter {
    /// Every sandbox.
    #[must_use]
    pub fn all(limit: usize) -> Self {
        Self {
            running: true,
            paused: true,
            limit,
            ..Self::default()
        }
    }

    /// The page of `records` that the filter selects for `principal`.
    #[must_use]
    pub fn page(&self, principal: &Principal, mut records: Vec<Arc<SandboxRecord>>) -> Page {
        let all_teams = self.all_teams && principal.admin;
        records.retain(|record| all_teams || record.team == principal.team);
        self.select(records)
    }

    /// The page of `sandboxes`, which are all of the caller's, that the filter selects.
    ///
    /// Ties in time are broken by id: ascending in the descending order and the other way round,
    /// as E2B's server does.
    #[must_use]
    pub fn select<T: Listed>(&self, mut sandboxes: Vec<T>) -> Page<T> {
        sandboxes.retain(|sandbox| self.matches(sandbox));
        let running = sandboxes.iter().filter(|one| shows_as_running(*one));
        let running = running.count();
        if let Some(after) = &self.after {
            let last = (after.started_at, &after.id);
            sandboxes.retain(|one| self.compare((one.started_at(), one.id()), last).is_gt());
        }
        let compare =
            |a: &T, b: &T| self.compare((a.started_at(), a.id()), (b.started_at(), b.id()));
        let more = sandboxes.len() > self.limit;
        if more {
            sandboxes.select_nth_unstable_by(self.limit, compare);
            sandboxes.truncate(self.limit);
        }
        sandboxes.sort_by(compare);
        let next = sandboxes.last().filter(|_| more).map(|last| PageToken {
            started_at: last.started_at(),
            id: last.id().clone(),
            order: self.order,
        });
        Page {
            sandboxes,
            next,
            running,
        }
    }

    fn compare(&self, a: (Timestamp, &SandboxId), b: (Timestamp, &SandboxId)) -> Ordering {
        let ascending = a.0.cmp(&b.0).then_with(|| b.1.cmp(a.1));
        match self.order {
            ListOrder::Ascending => ascending,
            ListOrder::Descending => ascending.reverse(),
        }
    }

    fn matches(&self, sandbox: &impl Listed) -> bool {
        let wanted = if shows_as_running(sandbox) {
            self.running
        } else {
            self.paused
        };
        wanted
            && sandbox.is_user_visible()
            && self
                .started_after
                .is_none_or(|moment| sandbox.started_at() >= moment)
            && self.template.as_ref().is_none_or(|id| sandbox.is_of(id))
            && sandbox.has_metadata(&self.metadata)
    }
}

/// Whether users see the sandbox as running: one that is being created or resumed is, one that is
/// being paused is not.
fn shows_as_running(sandbox: &impl Listed) -> bool {
    !matches!(sandbox.state(), StateKind::Pausing | StateKind::Paused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_token_is_read_back_and_nonsense_is_refused() {
        let token = PageToken {
            started_at: Timestamp::from_unix_millis(1_700_000_000_123),
            id: "ia".parse().unwrap(),
            order: ListOrder::Ascending,
        };
        assert_eq!(token.to_string().parse(), Ok(token));
        for bad in ["", "a", "x1-ia", "a-ia", "a1-", "d1-IA", "é1-ia", "a1"] {
            assert_eq!(bad.parse::<PageToken>(), Err(InvalidPageToken), "{bad}");
        }
    }

    struct Numbered(SandboxId, i64);

    impl Listed for Numbered {
        fn started_at(&self) -> Timestamp {
            Timestamp::from_unix_millis(self.1)
        }

        fn id(&self) -> &SandboxId {
            &self.0
        }

        fn state(&self) -> StateKind {
            StateKind::Running
        }

        fn is_user_visible(&self) -> bool {
            true
        }

        fn has_metadata(&self, _: &BTreeMap<String, String>) -> bool {
            true
        }

        fn is_of(&self, _: &TemplateId) -> bool {
            true
        }
    }

    #[test]
    fn pages_together_are_the_whole_list_in_its_order() {
        let ids: Vec<String> = (0..26)
            .map(|n| format!("i{}", char::from(b'a' + n)))
            .collect();
        // Three are started in each millisecond.
        let all = || {
            let mixed = (0..26).map(|n| n * 7 % 26);
            let one = |n: usize| Numbered(ids[n].parse().unwrap(), i64::try_from(n).unwrap() / 3);
            mixed.map(one).collect::<Vec<_>>()
        };
        for order in [ListOrder::Ascending, ListOrder::Descending] {
            let mut filter = ListFilter {
                order,
                ..ListFilter::all(4)
            };
            let mut found: Vec<(i64, String)> = Vec::new();
            loop {
                let page = filter.select(all());
                assert_eq!(page.running, 26);
                found.extend(page.sandboxes.iter().map(|one| (one.1, one.0.to_string())));
                filter.after = page.next;
                if filter.after.is_none() {
                    break;
                }
                assert_eq!(found.len() % 4, 0);
            }
            let mut expected: Vec<_> = all().iter().map(|one| (one.1, one.0.to_string())).collect();
            expected.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| b.1.cmp(&a.1)));
            if order == ListOrder::Descending {
                expected.reverse();
            }
            assert_eq!(found, expected);
        }
    }
}
