//! `shoal prepare-node`: prints what was installed.

use std::process::ExitCode;

use shoal_agent::{InstallArgs, Report};

/// Installs the runtime of pods that can be saved.
pub(crate) fn run(args: &InstallArgs) -> ExitCode {
    match shoal_agent::install(args) {
        Ok(report) => {
            print!("{}", told(&report, args.dry_run));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("shoal: the node was not prepared: {error}");
            ExitCode::FAILURE
        }
    }
}

fn told(report: &Report, dry_run: bool) -> String {
    let word = if dry_run { "would write" } else { "written" };
    let lines = report.files.iter().map(|file| {
        let did = if file.changed { word } else { "unchanged" };
        format!("{did:<12} {}\n", file.path.display())
    });
    let mut text: String = lines.collect();
    if report.restart {
        text.push_str(
            "Then restart containerd, which adds the handler: systemctl restart containerd\n",
        );
    }
    text
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
        assert_eq!(
            told(&report, false),
            "written      /a\nunchanged    /b\nThen restart containerd, which adds the handler: systemctl restart containerd\n"
        );
        report.restart = false;
        assert_eq!(told(&report, true), "would write  /a\nunchanged    /b\n");
    }
}
