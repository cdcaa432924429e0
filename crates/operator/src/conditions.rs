//! Conditions of an object's status.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The longest message that the API server takes.
const LONGEST_MESSAGE: usize = 32768;

/// The state of one condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) kind: &'static str,
    pub(crate) status: Truth,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truth {
    True,
    False,
    Unknown,
}

impl Truth {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }

    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "True" => Self::True,
            "False" => Self::False,
            _ => Self::Unknown,
        }
    }
}

impl State {
    pub(crate) fn new(
        kind: &'static str,
        status: Truth,
        reason: &str,
        message: impl Into<String>,
    ) -> Self {
        let mut message: String = message.into();
        if message.len() > LONGEST_MESSAGE {
            let end = (0..=LONGEST_MESSAGE)
                .rev()
                .find(|at| message.is_char_boundary(*at));
            message.truncate(end.unwrap_or_default());
        }
        Self {
            kind,
            status,
            reason: reason.to_owned(),
            message,
        }
    }
}

/// Adds the condition, or changes it in place. The time of the transition moves only with the status.
pub(crate) fn set(
    conditions: &mut Vec<Condition>,
    state: &State,
    generation: Option<i64>,
    now: Timestamp,
) {
    let status = state.status.as_str();
    if let Some(known) = conditions
        .iter_mut()
        .find(|known| known.type_ == state.kind)
    {
        if known.status != status {
            status.clone_into(&mut known.status);
            known.last_transition_time = Time(now);
        }
        known.reason.clone_from(&state.reason);
        known.message.clone_from(&state.message);
        known.observed_generation = generation;
        return;
    }
    conditions.push(Condition {
        type_: state.kind.to_owned(),
        status: status.to_owned(),
        reason: state.reason.clone(),
        message: state.message.clone(),
        observed_generation: generation,
        last_transition_time: Time(now),
    });
}

/// Removes the condition.
pub(crate) fn remove(conditions: &mut Vec<Condition>, kind: &str) {
    conditions.retain(|condition| condition.type_ != kind);
}

/// Finds the condition.
pub(crate) fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_transition_moves_with_the_status_only() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut conditions = Vec::new();
        set(
            &mut conditions,
            &State::new("Ready", Truth::False, "A", "a"),
            Some(1),
            at(1),
        );
        set(
            &mut conditions,
            &State::new("Ready", Truth::False, "B", "b"),
            Some(2),
            at(2),
        );
        assert_eq!(conditions[0].last_transition_time, Time(at(1)));
        assert_eq!(conditions[0].reason, "B");
        assert_eq!(conditions[0].observed_generation, Some(2));
        set(
            &mut conditions,
            &State::new("Ready", Truth::True, "B", "b"),
            Some(2),
            at(3),
        );
        assert_eq!(conditions[0].last_transition_time, Time(at(3)));
        assert_eq!(conditions.len(), 1);
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let state = State::new("Ready", Truth::False, "A", "ä".repeat(20_000));
        assert!(state.message.len() <= LONGEST_MESSAGE);
    }
}
