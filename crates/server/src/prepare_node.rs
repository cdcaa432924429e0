//! `shoal prepare-node`: installs the runtime of pods that can be saved, and prints a report.

use std::path::Path;
use std::process::ExitCode;

use shoal_agent::{InstallArgs, Report};

/// Installs the runtime of pods that can be saved.
pub(crate) fn run(args: &InstallArgs) -> ExitCode {
    let report = match shoal_agent::install(args) {
        Ok(report) => report,
        Err(error) => {
            eprintln!("shoal: the node was not prepared: {error}");
            return ExitCode::FAILURE;
        }
    };
    print!("{}", told(&report, args.dry_run));
    match args.restart.as_deref() {
        Some(unit) if report.restart && !args.dry_run => restart(&args.root, unit),
        _ => {
            print!("{}", left_to_do(&report));
            ExitCode::SUCCESS
        }
    }
}

fn restart(root: &Path, unit: &str) -> ExitCode {
    if let Err(error) = shoal_agent::restart(root, unit) {
        eprintln!(
            "shoal: the runtime is installed, but containerd has not loaded its configuration: {error}"
        );
        return ExitCode::FAILURE;
    }
    println!("{:<12} {unit}", "restarted");
    ExitCode::SUCCESS
}

fn told(report: &Report, dry_run: bool) -> String {
    let word = if dry_run { "would write" } else { "written" };
    let lines = report.files.iter().map(|file| {
        let did = if file.changed { word } else { "unchanged" };
        format!("{did:<12} {}\n", file.path.display())
    });
    lines.collect()
}

fn left_to_do(report: &Report) -> &'static str {
    if report.restart {
        "Then restart containerd, which adds the handler: systemctl restart containerd\n"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use shoal_agent::Installed;

    use super::*;

    #[test]
    fn a_report_says_what_changed_and_what_is_left_to_do() {
        let file = |path: &str, changed| Installed {
            path: path.into(),
            changed,
        };
        let mut report = Report {
            files: vec![file("/a", true), file("/b", false)],
            restart: true,
        };
        assert_eq!(told(&report, false), "written      /a\nunchanged    /b\n");
        assert!(left_to_do(&report).contains("restart containerd"));
        report.restart = false;
        assert_eq!(told(&report, true), "would write  /a\nunchanged    /b\n");
        assert_eq!(left_to_do(&report), "");
    }
}
