//! Random work on both sides, with crashes in between.
//!
//! In the end both sides are equal, and nothing is lost that no user gave up: a user who overwrites, removes or moves a
//! file gives up its visible contents, and nothing else.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::memory_home::Fault;

const PATHS: &[&str] = &["a.txt", "b.txt", "d", "d/c.txt", "d/e/f.txt"];

#[derive(Debug, Clone)]
enum Work {
    SessionWrites(usize),
    SessionRemoves(usize),
    SessionMoves(usize, usize),
    MachineWrites(usize),
    MachineRemoves(usize),
    MachineMoves(usize, usize),
    /// The watch reports, and the sync takes it.
    Told,
    /// The waiting changes are pushed.
    Pushed,
    Settled,
    /// The next call of the machine fails.
    Fails(Fault),
    WatchBreaks,
    ServerRestarts,
    MachineIsReplaced,
}

fn work() -> impl Strategy<Value = Work> {
    let at = || 0..PATHS.len();
    let fault = prop_oneof![
        Just(Fault::Before),
        (0usize..3).prop_map(Fault::After),
        (0usize..3, 0usize..12).prop_map(|(made, steps)| Fault::Within(made, steps)),
    ];
    prop_oneof![
        6 => at().prop_map(Work::SessionWrites),
        2 => at().prop_map(Work::SessionRemoves),
        2 => (at(), at()).prop_map(|(from, to)| Work::SessionMoves(from, to)),
        6 => at().prop_map(Work::MachineWrites),
        2 => at().prop_map(Work::MachineRemoves),
        2 => (at(), at()).prop_map(|(from, to)| Work::MachineMoves(from, to)),
        3 => Just(Work::Told),
        3 => Just(Work::Pushed),
        2 => Just(Work::Settled),
        3 => fault.prop_map(Work::Fails),
        1 => Just(Work::WatchBreaks),
        2 => Just(Work::ServerRestarts),
        1 => Just(Work::MachineIsReplaced),
    ]
}

struct Run {
    pair: Pair,
    sync: Option<Sync>,
    written: usize,
    /// Contents that have to be somewhere.
    kept: BTreeSet<String>,
}

impl Run {
    fn new_contents(&mut self) -> String {
        self.written += 1;
        // With many lengths, so that mixtures differ.
        format!("{}:{}", self.written, "x".repeat(self.written % 7))
    }

    fn gives_up(&mut self, seen: &BTreeMap<String, String>, at: &str) {
        let directory = path(at);
        for (seen, contents) in seen {
            if path(seen).is_within(&directory) {
                self.kept.remove(contents);
            }
        }
    }

    /// A connection, made when there is none.
    async fn connected(&mut self) -> Option<&mut Sync> {
        if self.sync.is_none() {
            self.sync = self.pair.sync(false).await.ok();
        }
        self.sync.as_mut()
    }

    async fn settled(&mut self) -> bool {
        let Some(sync) = self.connected().await else {
            return false;
        };
        let settled = sync.settle().await.is_ok();
        if !settled {
            self.sync = None;
        }
        settled
    }

    async fn works(&mut self, work: Work) {
        match work {
            Work::SessionWrites(at) => {
                let (at, contents) = (PATHS[at], self.new_contents());
                let seen = self.pair.session().await;
                if self.pair.files.write(file(at, &contents)).await.is_ok() {
                    self.gives_up(&seen, at);
                    self.kept.insert(contents);
                }
            }
            Work::SessionRemoves(at) => {
                let seen = self.pair.session().await;
                if self.pair.files.remove(&path(PATHS[at])).await.is_ok() {
                    self.gives_up(&seen, PATHS[at]);
                }
            }
            Work::SessionMoves(from, to) => {
                let (from, to) = (path(PATHS[from]), path(PATHS[to]));
                drop(self.pair.files.rename(&from, &to).await);
            }
            Work::MachineWrites(at) => {
                let (at, contents) = (PATHS[at], self.new_contents());
                let seen = self.pair.machine();
                if self.pair.home.write(&path(at), contents.as_bytes()) {
                    self.gives_up(&seen, at);
                    self.kept.insert(contents);
                }
            }
            Work::MachineRemoves(at) => {
                let seen = self.pair.machine();
                self.pair.home.remove(&path(PATHS[at]));
                self.gives_up(&seen, PATHS[at]);
            }
            Work::MachineMoves(from, to) if from != to => {
                let seen = self.pair.machine();
                let is_taken = seen.contains_key(PATHS[to]) && seen.contains_key(PATHS[from]);
                if self.pair.home.rename(&path(PATHS[from]), &path(PATHS[to])) && is_taken {
                    self.gives_up(&seen, PATHS[to]);
                }
            }
            Work::MachineMoves(..) => {}
            other => self.happens(other).await,
        }
    }

    async fn happens(&mut self, work: Work) {
        match work {
            Work::Told => {
                self.pair.home.tell();
                if let Some(sync) = &mut self.sync {
                    let event = futures_util::FutureExt::now_or_never(sync.next());
                    let taken = match event {
                        Some(Ok(event)) => sync.event(event).await.is_ok(),
                        Some(Err(_)) => false,
                        None => true,
                    };
                    if !taken {
                        self.sync = None;
                    }
                }
            }
            Work::Pushed => {
                if let Some(sync) = &self.sync
                    && sync.side.push().await.is_err()
                {
                    self.sync = None;
                }
            }
            Work::Fails(fault) => self.pair.home.fail_next(fault),
            Work::WatchBreaks => self.pair.home.break_watch(),
            Work::ServerRestarts => {
                self.sync = None;
                self.pair.restart();
            }
            Work::MachineIsReplaced => {
                // It ends only after its files are on this side.
                if self.settled().await {
                    self.sync = None;
                    self.pair.replace_machine().await;
                    self.pair.home.write(&path("a.txt"), b"template");
                    self.sync = self.pair.sync(true).await.ok();
                }
            }
            _ => drop(self.settled().await),
        }
    }

    /// Lets everything come to rest, and compares.
    async fn ends(mut self) {
        let mut attempts = 0;
        // A fault may wait for the next call.
        while !(self.settled().await && self.settled().await) {
            attempts += 1;
            assert!(attempts < 10, "it never settles");
        }
        let session = self.pair.session().await;
        let mut machine = self.pair.machine();
        // Files of the template belong to the session only where a user has moved them, and may be in the way.
        let is_template =
            |at: &String, contents: &String| contents == "template" && !session.contains_key(at);
        let templates = machine.extract_if(.., |at, contents| is_template(at, contents));
        let templates: Vec<_> = templates.map(|(at, _)| path(&at)).collect();
        let hinders =
            |at: &str, with: &SessionPath| path(at).is_within(with) || with.is_within(&path(at));
        let mut there = session.clone();
        there.retain(|at, _| !templates.iter().any(|with| hinders(at, with)));
        assert_eq!(there, machine);
        let view = self.pair.files.sync_view().await.unwrap();
        let waiting = session.len() - there.len();
        assert_eq!(view.notes.len(), waiting, "{view:?}");
        let lost: Vec<_> = self
            .kept
            .iter()
            .filter(|kept| !session.values().any(|contents| contents == *kept))
            .collect();
        assert!(lost.is_empty(), "{lost:?} of {session:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn both_sides_become_equal_and_nothing_is_lost(works in prop::collection::vec(work(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().build().unwrap();
        runtime.block_on(async {
            let pair = Pair::new();
            let sync = pair.sync(true).await.ok();
            let mut run = Run { pair, sync, written: 0, kept: BTreeSet::new() };
            for work in works {
                run.works(work).await;
            }
            run.ends().await;
        });
    }
}
