use shoal_protocol::sync::frame::{Change, Head, Write};

use super::super::apply::Applier;
use super::super::table::Counter;
use super::*;

/// The lines up to a flush.
fn until(lines: &mut mpsc::Receiver<Bytes>, flush: u64) -> Vec<WatchLine> {
    let mut seen = Vec::new();
    loop {
        let piece = lines.blocking_recv().unwrap();
        for line in piece
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            seen.push(serde_json::from_slice(line).unwrap());
        }
        let last = seen.last();
        if matches!(last, Some(WatchLine::Settled { flush: told, .. }) if *told >= flush) {
            return seen;
        }
    }
}

#[test]
fn a_kernel_that_tells_nothing_is_told_of_and_done_without() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("d")).unwrap();
    std::fs::write(dir.path().join("d/a"), "1").unwrap();
    let home = Home::open(dir.path(), rustix::process::geteuid().as_raw()).unwrap();
    let control = Arc::new(Control::new().unwrap());
    let table = Arc::new(Mutex::new(Table::new(Counter::default())));
    let (sender, mut lines) = mpsc::channel(4);
    let path = dir.path().to_owned();
    let mut watcher = Watcher::new(home, path, 1 << 20, table, control.clone(), sender);
    watcher.notifier = Notifier::blind();
    let thread = std::thread::spawn(move || watcher.run());
    let first = until(&mut lines, 0);
    let limits = |line: &&WatchLine| matches!(line, WatchLine::Limited { path: None, .. });
    assert_eq!(first.iter().filter(limits).count(), 1, "{first:?}");
    std::fs::remove_file(dir.path().join("d/a")).unwrap();
    std::fs::write(dir.path().join("d/b"), "2").unwrap();
    let flush = control.flush().unwrap();
    let [
        WatchLine::Present { path: made, .. },
        WatchLine::Absent { path: gone, .. },
        _,
    ] = &until(&mut lines, flush)[..]
    else {
        panic!("something else was told");
    };
    assert_eq!((made.as_str(), gone.as_str()), ("d/b", "d/a"));
    // And without a flush, some time later.
    std::fs::write(dir.path().join("d/c"), "3").unwrap();
    assert!(
        lines
            .blocking_recv()
            .unwrap()
            .starts_with(b"{\"event\":\"present\"")
    );
    control.end();
    assert!(matches!(thread.join().unwrap(), WatchEnd::Closed));
    assert_eq!(control.flush(), None);
}

/// A home with a watch that has scanned it once, and the writer of the server's files.
struct Pushed {
    dir: tempfile::TempDir,
    table: Arc<Mutex<Table>>,
    lines: mpsc::Receiver<Bytes>,
    watcher: Watcher,
    applier: Applier,
}

impl Pushed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = || Home::open(dir.path(), rustix::process::geteuid().as_raw()).unwrap();
        let counter = Counter::default();
        let table = Arc::new(Mutex::new(Table::new(counter.clone())));
        let control = Arc::new(Control::new().unwrap());
        let (sender, lines) = mpsc::channel(4);
        let path = dir.path().to_owned();
        let mut watcher = Watcher::new(home(), path, 1 << 20, table.clone(), control, sender);
        watcher.scan_all().unwrap();
        let applier = Applier::new(home(), Some(table.clone()), counter);
        Self {
            dir,
            table,
            lines,
            watcher,
            applier,
        }
    }

    /// Writes 100 files below a directory, and expects more until the returned time.
    fn write_many(&mut self, directory: &str) -> (Vec<SessionPath>, Instant) {
        let names = (0..100).map(|n| format!("{directory}{n}.txt").parse().unwrap());
        let names: Vec<SessionPath> = names.collect();
        for path in &names {
            let write = Some(Write {
                size: 1,
                executable: false,
            });
            self.applier.apply(&Change {
                head: Head {
                    path: path.clone(),
                    expected: None,
                    write,
                },
                contents: b"1".to_vec(),
            });
        }
        let far = Instant::now() + Duration::from_secs(600);
        self.table.lock().expect_more(far);
        (names, far)
    }
}

#[test]
fn many_files_of_the_server_are_read_when_it_is_done_and_a_change_inside_at_once() {
    let mut pushed = Pushed::new();
    let (names, far) = pushed.write_many("");
    let Pushed {
        dir,
        table,
        mut lines,
        mut watcher,
        applier,
    } = pushed;
    assert_eq!(applier.finish().len(), names.len());
    // Only the server's files have events: all of them wait.
    watcher.read_events();
    assert_eq!(watcher.look_at_due().unwrap(), Some(LULL));
    assert!(names.iter().all(|path| table.lock().is_written(path)));
    assert_eq!(watcher.dirty.next_due(), Some(far));
    // A change inside does not wait for them.
    std::fs::write(dir.path().join("own.txt"), "own").unwrap();
    watcher.read_events();
    assert_eq!(watcher.look_at_due().unwrap(), None);
    watcher.output.send().unwrap();
    let told = String::from_utf8(lines.try_recv().unwrap().to_vec()).unwrap();
    assert!(
        told.contains("own.txt") && !told.contains("\"1.txt\""),
        "{told}"
    );
    // A flush reads everything, and finds a change that came at the same moment as the server's.
    std::fs::write(dir.path().join("1.txt"), "other").unwrap();
    watcher.read_events();
    watcher.settle(1).unwrap();
    let told = String::from_utf8(lines.try_recv().unwrap().to_vec()).unwrap();
    assert!(
        told.contains("\"1.txt\"") && !told.contains("\"2.txt\""),
        "{told}"
    );
    assert!(!names.iter().any(|path| table.lock().is_written(path)));
}

#[test]
fn many_files_of_the_server_in_a_new_directory_wait_together() {
    let mut pushed = Pushed::new();
    let (names, far) = pushed.write_many("d/");
    assert_eq!(pushed.applier.finish().len(), names.len());
    std::fs::write(pushed.dir.path().join("d/own.txt"), "own").unwrap();
    let mut watcher = pushed.watcher;
    watcher.read_events();
    // The directory's own event leads to a scan, which puts off all files but that of the machine.
    watcher.look_at_due().unwrap();
    let table = pushed.table;
    assert!(names.iter().all(|path| table.lock().is_written(path)));
    let waiting = watcher.dirty.take_all();
    assert_eq!(waiting.len(), names.len() + 1, "{waiting:?}");
    for path in waiting {
        watcher.dirty.put_off(path, far, Instant::now());
    }
    watcher.settle(1).unwrap();
    let told = String::from_utf8(pushed.lines.try_recv().unwrap().to_vec()).unwrap();
    assert!(
        told.contains("\"d/own.txt\"") && !told.contains("\"d/1.txt\""),
        "{told}"
    );
    assert!(!names.iter().any(|path| table.lock().is_written(path)));
}
