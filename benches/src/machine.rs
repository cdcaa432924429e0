//! The machine that the figures were taken on, without its name.

use std::fmt;
use std::fs;
use std::process::Command;

/// What is said of the machine.
#[derive(Debug)]
pub(crate) struct Machine {
    facts: Vec<(&'static str, String)>,
}

impl Machine {
    /// Looks at this machine.
    pub(crate) fn look() -> Self {
        let date = time::OffsetDateTime::now_utc().date().to_string();
        let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        let facts = vec![
            ("date", date),
            ("processor", processor()),
            ("cores", cores.to_string()),
            ("memory", format!("{:.0} GiB", memory("MemTotal") / 1024.0)),
            ("kernel", read("/proc/sys/kernel/osrelease")),
            ("runsc", first_line("runsc", "--version")),
            ("runc", first_line("runc", "--version")),
            ("nginx", first_line("nginx", "-v")),
            (
                "load before the run",
                read("/proc/loadavg")
                    .split(' ')
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            ),
        ];
        Self { facts }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| machine | |\n|---|---|")?;
        self.facts
            .iter()
            .try_for_each(|(name, fact)| writeln!(f, "| {name} | {fact} |"))
    }
}

/// A line of `/proc/meminfo`, in MiB; zero when there is none.
pub(crate) fn memory(key: &str) -> f64 {
    keyed(&read("/proc/meminfo"), key) / 1024.0
}

/// The number behind `key:` in a file of such lines; zero when there is none.
pub(crate) fn keyed(text: &str, key: &str) -> f64 {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or_default()
}

fn processor() -> String {
    let text = read("/proc/cpuinfo");
    let line = text.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| Some(line.split_once(':')?.1.trim().to_owned()))
        .unwrap_or_default()
}

fn read(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn first_line(program: &str, flag: &str) -> String {
    let Ok(output) = Command::new(program).arg(flag).output() else {
        return "missing".to_owned();
    };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    text.lines().next().unwrap_or_default().to_owned()
}
