//! Listing the sandboxes of a team, a page at a time.

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

/// A page of a list.
#[derive(Debug, Clone)]
pub struct Page {
    /// The sandboxes.
    pub sandboxes: Vec<Arc<SandboxRecord>>,
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
    ///
    /// Ties in time are broken by id: ascending in the descending order and the other way round,
    /// as E2B's server does.
    #[must_use]
    pub fn page(&self, principal: &Principal, mut records: Vec<Arc<SandboxRecord>>) -> Page {
        let all_teams = self.all_teams && principal.admin;
        records
            .retain(|record| (all_teams || record.team == principal.team) && self.matches(record));
        let running = records
            .iter()
            .filter(|record| shows_as_running(record))
            .count();
        let compare = |a: (Timestamp, &SandboxId), b: (Timestamp, &SandboxId)| {
            let ascending = a.0.cmp(&b.0).then_with(|| b.1.cmp(a.1));
            match self.order {
                ListOrder::Ascending => ascending,
                ListOrder::Descending => ascending.reverse(),
            }
        };
        records.sort_by(|a, b| compare((a.started_at, &a.id), (b.started_at, &b.id)));
        if let Some(after) = &self.after {
            let last = (after.started_at, &after.id);
            records.retain(|record| compare((record.started_at, &record.id), last).is_gt());
        }
        let more = records.len() > self.limit;
        records.truncate(self.limit);
        let next = records.last().filter(|_| more).map(|last| PageToken {
            started_at: last.started_at,
            id: last.id.clone(),
            order: self.order,
        });
        Page {
            sandboxes: records,
            next,
            running,
        }
    }

    fn matches(&self, record: &SandboxRecord) -> bool {
        let wanted = if shows_as_running(record) {
            self.running
        } else {
            self.paused
        };
        let labels = &record.spec.metadata;
        record.is_user_visible()
            && wanted
            && self
                .metadata
                .iter()
                .all(|(key, value)| labels.get(key) == Some(value))
            && self
                .started_after
                .is_none_or(|moment| record.started_at >= moment)
            && self
                .template
                .as_ref()
                .is_none_or(|id| record.spec.template == *id)
    }
}

/// Whether users see the sandbox as running: one that is being created or resumed is, one that is
/// being paused is not.
fn shows_as_running(record: &SandboxRecord) -> bool {
    !matches!(record.state.kind(), StateKind::Pausing | StateKind::Paused)
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
}
