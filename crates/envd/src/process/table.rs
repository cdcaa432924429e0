//! Live and recently ended processes.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shoal_protocol::process::ProcessInfo;
use shoal_protocol::process::process_event::EndEvent;
use shoal_protocol::process::process_selector::Selector;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::Semaphore;

use super::{Children, Process};
use crate::active_time::ActiveTime;
use crate::log::Log;
use crate::log::lines::LineRate;
use crate::oom_killer::OomKiller;
use crate::process::output::Scratch;

/// How long an end event is retained for late subscribers (spec).
const END_RETENTION: Duration = Duration::from_secs(30);

/// Limit of retained end events; beyond it the oldest is dropped early.
const MAX_RETAINED_ENDS: usize = 4096;

/// Process limit. Each process costs the daemon three descriptors and some memory.
pub(super) const MAX_PROCESSES: usize = 8192;

/// The end of a process, for late subscribers.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    /// Process id.
    pub(super) pid: u32,
    /// The end event.
    pub(super) event: Arc<EndEvent>,
    tag: Option<String>,
    /// Distinguishes processes with the same process id.
    serial: u64,
}

/// Result of a lookup.
pub(super) enum LookupResult {
    /// A process that runs or whose output is still open.
    Live(Arc<Process>),
    /// A recently ended process.
    Ended(Ended),
}

/// Lookup failure. The texts are E2B's: clients compare them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotFound {
    /// Unknown process id.
    #[error("process with pid {0} not found")]
    Pid(u32),
    /// Unknown tag.
    #[error("process with tag {0} not found")]
    Tag(String),
    /// Empty selector.
    #[error("process selector is empty")]
    Empty,
}

/// All processes started through the daemon.
pub(crate) struct Processes {
    pub(super) children: Arc<Children>,
    pub(super) time: Arc<ActiveTime>,
    pub(super) oom_killer: Arc<OomKiller>,
    pub(super) log: Log,
    pub(super) rate: Arc<LineRate>,
    pub(super) scratch: Arc<Scratch>,
    slots: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    live: BTreeMap<u32, Arc<Process>>,
    ended: HashMap<u32, Ended>,
    /// Ends in chronological order, by process id and serial.
    order: VecDeque<(u32, u64)>,
    serial: u64,
}

impl Processes {
    /// An empty table.
    pub(crate) fn new(
        children: Arc<Children>,
        time: Arc<ActiveTime>,
        oom_killer: Arc<OomKiller>,
        log: Log,
    ) -> Self {
        Self {
            children,
            time,
            oom_killer,
            log,
            rate: Arc::default(),
            scratch: Arc::default(),
            slots: Arc::new(Semaphore::new(MAX_PROCESSES)),
            state: Mutex::default(),
        }
    }

    /// Reserves a slot until dropped. `None` at the limit.
    pub(super) fn reserve_slot(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.slots).try_acquire_owned().ok()
    }

    /// Adds a process. Drops the retained ends with the same process id or tag.
    pub(super) fn add(&self, process: &Arc<Process>) {
        let mut state = self.state.lock();
        state.ended.remove(&process.pid);
        if process.tag.is_some() {
            state.ended.retain(|_, ended| ended.tag != process.tag);
        }
        state.live.insert(process.pid, Arc::clone(process));
    }

    /// Marks a process as ended and retains its end.
    pub(super) fn end(self: &Arc<Self>, process: &Process, event: Arc<EndEvent>) {
        let pid = process.pid;
        let mut state = self.state.lock();
        state.live.remove(&pid);
        state.serial += 1;
        let serial = state.serial;
        let ended = Ended {
            pid,
            event,
            tag: process.tag.clone(),
            serial,
        };
        state.ended.insert(pid, ended);
        state.order.push_back((pid, serial));
        if state.order.len() > MAX_RETAINED_ENDS {
            state.forget_oldest();
        }
        drop(state);
        let this = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(END_RETENTION).await;
            this.state.lock().forget(pid, serial);
        });
    }

    /// All live processes.
    pub(super) fn list(&self) -> Vec<ProcessInfo> {
        let state = self.state.lock();
        state.live.values().map(|process| process.info()).collect()
    }

    /// The program and arguments of all live processes.
    pub(crate) fn command_lines(&self) -> Vec<Vec<String>> {
        let state = self.state.lock();
        let lines = state.live.values().map(|process| {
            let config = &process.config;
            std::iter::once(&config.cmd)
                .chain(&config.args)
                .cloned()
                .collect()
        });
        lines.collect()
    }

    /// Looks up a process. If several have the tag, the newest.
    pub(super) fn find(&self, selector: Option<&Selector>) -> Result<LookupResult, NotFound> {
        let state = self.state.lock();
        let result = match selector {
            Some(Selector::Pid(pid)) => {
                let live = state.live.get(pid).cloned().map(LookupResult::Live);
                live.or_else(|| state.ended.get(pid).cloned().map(LookupResult::Ended))
            }
            Some(Selector::Tag(tag)) => {
                let is_it = |other: &Option<String>| other.as_ref() == Some(tag);
                let mut live = state.live.values().rev();
                let live = live.find(|process| is_it(&process.tag)).cloned();
                let mut ended = state.ended.values();
                live.map(LookupResult::Live).or_else(|| {
                    let ended = ended.find(|ended| is_it(&ended.tag)).cloned();
                    ended.map(LookupResult::Ended)
                })
            }
            None => return Err(NotFound::Empty),
        };
        result.ok_or_else(|| match selector {
            Some(Selector::Pid(pid)) => NotFound::Pid(*pid),
            Some(Selector::Tag(tag)) => NotFound::Tag(tag.clone()),
            None => NotFound::Empty,
        })
    }

    /// Looks up a live process.
    pub(super) fn find_live(&self, selector: Option<&Selector>) -> Result<Arc<Process>, NotFound> {
        match self.find(selector)? {
            LookupResult::Live(process) => Ok(process),
            LookupResult::Ended(ended) => Err(match selector {
                Some(Selector::Tag(tag)) => NotFound::Tag(tag.clone()),
                _ => NotFound::Pid(ended.pid),
            }),
        }
    }
}

impl State {
    fn forget(&mut self, pid: u32, serial: u64) {
        if self
            .ended
            .get(&pid)
            .is_some_and(|ended| ended.serial == serial)
        {
            self.ended.remove(&pid);
        }
        self.order.retain(|entry| *entry != (pid, serial));
    }

    fn forget_oldest(&mut self) {
        if let Some((pid, serial)) = self.order.front().copied() {
            self.forget(pid, serial);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;
    use crate::process::exit::Status;
    use crate::process::input::Input;

    fn processes() -> Arc<Processes> {
        Arc::new(Processes::new(
            Arc::default(),
            Arc::default(),
            Arc::default(),
            Log::none(),
        ))
    }

    fn process(pid: u32, tag: Option<&str>) -> Arc<Process> {
        Arc::new(Process {
            pid,
            config: Default::default(),
            tag: tag.map(str::to_owned),
            input: Input::pipe(None).unwrap(),
            output: Arc::default(),
            signalled: watch::Sender::new(false),
        })
    }

    fn event(code: i32) -> Arc<EndEvent> {
        Arc::new(Status::Exited(code).to_event())
    }

    fn code(processes: &Processes, selector: Selector) -> Option<i32> {
        match processes.find(Some(&selector)) {
            Ok(LookupResult::Ended(ended)) => Some(ended.event.exit_code),
            _ => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_is_kept_for_a_while() {
        let processes = processes();
        let process = process(7, Some("job"));
        processes.add(&process);
        processes.end(&process, event(3));
        assert_eq!(code(&processes, Selector::Pid(7)), Some(3));
        assert_eq!(code(&processes, Selector::Tag("job".into())), Some(3));
        assert!(processes.find_live(Some(&Selector::Pid(7))).is_err());
        tokio::time::sleep(END_RETENTION - Duration::from_millis(1)).await;
        assert_eq!(code(&processes, Selector::Pid(7)), Some(3));
        tokio::time::sleep(Duration::from_millis(2)).await;
        let error = processes.find(Some(&Selector::Pid(7))).err();
        assert_eq!(
            error.map(|error| error.to_string()),
            Some("process with pid 7 not found".into())
        );
        assert!(processes.state.lock().order.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_retained_end_does_not_apply_to_a_new_process() {
        let processes = processes();
        let old = process(7, None);
        processes.add(&old);
        processes.end(&old, event(1));
        tokio::time::sleep(END_RETENTION / 2).await;
        let new = process(7, None);
        processes.add(&new);
        assert_eq!(code(&processes, Selector::Pid(7)), None);
        processes.end(&new, event(2));
        tokio::time::sleep(END_RETENTION * 3 / 4).await;
        assert_eq!(code(&processes, Selector::Pid(7)), Some(2));
    }

    #[tokio::test]
    async fn a_shared_tag_selects_the_newest_process() {
        let processes = processes();
        processes.add(&process(7, Some("job")));
        processes.add(&process(8, Some("job")));
        let result = processes.find_live(Some(&Selector::Tag("job".into())));
        assert_eq!(result.unwrap().pid, 8);
        assert_eq!(processes.list().len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_retained_ends_is_bounded() {
        let processes = processes();
        for pid in 0..=u32::try_from(MAX_RETAINED_ENDS).unwrap() {
            processes.end(&process(pid, None), event(0));
        }
        assert!(processes.find(Some(&Selector::Pid(0))).is_err());
        assert!(processes.find(Some(&Selector::Pid(1))).is_ok());
    }
}
