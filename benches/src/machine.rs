//! A description of the machine that was measured, without its name.

use std::fmt;
use std::fs;
use std::process::Command;

/// Facts about the machine.
#[derive(Debug)]
pub(crate) struct Machine {
    facts: Vec<(&'static str, String)>,
}

impl Machine {
    /// Reads the facts of this machine.
    pub(crate) fn look() -> Self {
        let date = time::OffsetDateTime::now_utc().date().to_string();
        let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        let facts = vec![
            ("date", date),
            ("processor", processor()),
            ("cores", cores.to_string()),
            ("memory", format!("{:.0} GiB", memory("MemTotal") / 1024.0)),
            ("kernel", read("/proc/sys/kernel/osrelease")),
            ("runsc", runsc()),
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
        writeln!(f, "| | |\n|---|---|")?;
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

/// The version of gVisor.
fn runsc() -> String {
    let version = first_line("runsc", "--version");
    if !version.contains("VERSION_MISSING") {
        return version;
    }
    // A build without a version still has that of its Go module.
    let built = Command::new("sh")
        .args(["-c", "go version -m \"$(command -v runsc)\""])
        .output();
    let text = built.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    module_version(&text.unwrap_or_default())
        .unwrap_or_else(|| "unknown: built without a version".to_owned())
}

/// The version of the main module, in the output of `go version -m`.
fn module_version(text: &str) -> Option<String> {
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("mod\t"))?;
    let mut fields = line.split('\t');
    Some(format!("{} {}", fields.next()?, fields.next()?))
}

fn first_line(program: &str, flag: &str) -> String {
    let Ok(output) = Command::new(program).arg(flag).output() else {
        return "missing".to_owned();
    };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_a_go_program_is_that_of_its_main_module() {
        let text = "/usr/bin/runsc: go1.26\n\tpath\tgvisor.dev/gvisor/runsc\n\
                    \tmod\tgvisor.dev/gvisor\tv0.0.0-20260905035102-160fafc42237\th1:AU5=\n\
                    \tdep\tgithub.com/x/y\tv1.0.0\n";
        assert_eq!(
            module_version(text).as_deref(),
            Some("gvisor.dev/gvisor v0.0.0-20260905035102-160fafc42237")
        );
        assert_eq!(module_version("go: not a Go executable"), None);
    }
}
