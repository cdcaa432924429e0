//! The contents that pauses and snapshots save of a pod.

use super::names::{annotation, content};
use super::parts::PauseStrategyKind;
use super::sandbox::Sandbox;

/// Memory is of no use without the files that programs have open.
const MEMORY: &[&str] = &[content::MEMORY, content::FILESYSTEM];
const FILES: &[&str] = &[content::FILESYSTEM];

impl Sandbox {
    /// The contents that its next pause saves; none if volumes alone keep their contents. `savable` is whether the pod
    /// is one that can be saved: without a word about the strategy, others are stopped.
    #[must_use]
    pub fn saved_by_pause(&self, savable: bool) -> Option<&'static [&'static str]> {
        if let Some(asked) = self.annotation(annotation::PAUSE_CONTENTS) {
            return pause_contents(asked);
        }
        let strategy = self.spec.pause_strategy.as_ref();
        match strategy.and_then(|strategy| strategy.kind) {
            Some(PauseStrategyKind::Stop) => None,
            Some(PauseStrategyKind::Hibernate) => Some(self.saved_by_snapshot()),
            None => self.named_contents().filter(|_| savable),
        }
    }

    /// The default contents of a snapshot: those that the sandbox keeps, except its address.
    #[must_use]
    pub fn saved_by_snapshot(&self) -> &'static [&'static str] {
        self.named_contents().unwrap_or(MEMORY)
    }

    fn named_contents(&self) -> Option<&'static [&'static str]> {
        contents(self.spec.persistent_contents.iter().map(String::as_str))
    }
}

/// The contents of a pause by the annotation [`PAUSE_CONTENTS`](annotation::PAUSE_CONTENTS), a list like `memory,filesystem`.
/// `None` if it names neither memory nor files.
#[must_use]
pub fn pause_contents(list: &str) -> Option<&'static [&'static str]> {
    contents(list.split(',').map(str::trim))
}

/// The contents of these that a checkpoint keeps.
fn contents<'a>(named: impl Iterator<Item = &'a str>) -> Option<&'static [&'static str]> {
    let mut found = None;
    for name in named {
        match name {
            content::MEMORY => return Some(MEMORY),
            content::FILESYSTEM => found = Some(FILES),
            // An address is not saved.
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn sandbox(spec: &Value, annotations: &Value) -> Sandbox {
        let metadata = json!({"name": "s", "annotations": annotations});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    #[test]
    fn the_strategy_and_the_contents_say_what_a_pause_saves() {
        let of = |spec: Value, savable| sandbox(&spec, &json!({})).saved_by_pause(savable);
        let kept = || json!(["ip", "memory", "filesystem"]);
        assert_eq!(of(json!({}), true), None);
        assert_eq!(
            of(json!({"persistentContents": kept()}), true),
            Some(MEMORY)
        );
        assert_eq!(of(json!({"persistentContents": kept()}), false), None);
        assert_eq!(
            of(json!({"persistentContents": ["filesystem"]}), true),
            Some(FILES)
        );
        assert_eq!(of(json!({"persistentContents": ["ip"]}), true), None);
        let stop = json!({"persistentContents": kept(), "pauseStrategy": {"type": "Stop"}});
        assert_eq!(of(stop, true), None);
        let hibernate = json!({"pauseStrategy": {"type": "Hibernate"}});
        assert_eq!(of(hibernate, false), Some(MEMORY));
    }

    #[test]
    fn one_pause_may_save_something_else() {
        let asked = |contents: &str| {
            let spec = json!({"pauseStrategy": {"type": "Stop"}});
            let sandbox = sandbox(&spec, &json!({annotation::PAUSE_CONTENTS: contents}));
            sandbox.saved_by_pause(false)
        };
        assert_eq!(asked("memory, filesystem"), Some(MEMORY));
        assert_eq!(asked("filesystem"), Some(FILES));
        assert_eq!(asked("volumes"), None);
    }

    #[test]
    fn a_snapshot_inherits_all_but_the_address() {
        let of = |contents: Value| {
            let spec = json!({"persistentContents": contents});
            sandbox(&spec, &json!({})).saved_by_snapshot()
        };
        assert_eq!(of(json!(["ip", "filesystem"])), FILES);
        assert_eq!(of(json!(["memory"])), MEMORY);
        assert_eq!(of(json!(["ip"])), MEMORY);
    }
}
