//! Warnings about valid entries that are probably mistakes (Agent-Sandbox, Best practices).

use std::fmt;

use super::Catalogue;
use super::command::Command;
use super::entry::{Entry, EntryResources, Kind};
use super::pattern::Pattern;
use crate::resources::{Mib, MilliCpu};

/// A warning for the operator. The entry is accepted all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The entry.
    pub name: String,
    /// The field.
    pub field: &'static str,
    /// The problem, and how to fix it.
    pub message: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: `{}`: {}", self.name, self.field, self.message)
    }
}

/// Unrelated names: a pattern that matches all of them matches almost any name.
const STRANGERS: [&str; 3] = ["zqx-1.0", "a.b-c_d.9", "0-q.0"];

impl Catalogue {
    /// All warnings for one machine, entry by entry.
    #[must_use]
    pub fn lint(&self) -> Vec<Warning> {
        self.lint_with(|entry, say| {
            if entry.args.is_some() && entry.start_cmd.is_none() {
                say(
                    "args",
                    "go to no program: the image's own is not started here; say it in `startCmd`",
                );
            }
            if entry.substrate.is_some() {
                say(
                    "substrate",
                    "means nothing on one machine: it is for clusters",
                );
            }
        })
    }

    /// The same, for a cluster.
    #[must_use]
    pub fn lint_in_cluster(&self) -> Vec<Warning> {
        self.lint_with(|entry, say| {
            let Some(pool) = &entry.pool else {
                return;
            };
            let unread = [
                ("pool.max", pool.max.is_some()),
                ("pool.scaleDownAfter", pool.scale_down_after.is_some()),
                ("pool.keepRunning", pool.keep_running.is_some()),
                ("pool.hot", pool.hot.is_some()),
            ];
            for (field, _) in unread.into_iter().filter(|(_, said)| *said) {
                say(field, "means nothing in a cluster: let an autoscaler write the size of the SandboxSet");
            }
        })
    }

    fn lint_with(
        &self,
        of_place: impl Fn(&Entry, &mut dyn FnMut(&'static str, &str)),
    ) -> Vec<Warning> {
        let mut warnings = Vec::new();
        for entry in self.entries() {
            let mut say = |field: &'static str, message: &str| {
                warnings.push(Warning {
                    name: entry.name.to_string(),
                    field,
                    message: message.to_owned(),
                });
            };
            name(entry, &mut say);
            pattern(entry, &mut say);
            if let Some(resources) = &entry.resources {
                limits(resources, &mut say);
            }
            pool(entry, &mut say);
            of_place(entry, &mut say);
        }
        warnings
    }
}

fn name(entry: &Entry, say: &mut impl FnMut(&'static str, &str)) {
    let name = entry.name.as_str();
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if !name.bytes().all(good) || name.contains("--") || name.ends_with('-') {
        say(
            "name",
            "is best of small letters, digits and single hyphens, as in `code-interpreter`",
        );
    }
    if entry.description.trim().is_empty() {
        say("description", "is empty: say in a line what it is for");
    }
}

fn pattern(entry: &Entry, say: &mut impl FnMut(&'static str, &str)) {
    let Some(text) = entry.pattern.as_deref() else {
        return;
    };
    if !entry.is_dynamic() {
        let kind = entry.kind.unwrap_or(Kind::Static);
        say(
            "pattern",
            &format!("means nothing while `type` is {kind:?}: say \"dynamic\""),
        );
        return;
    }
    let wide = Pattern::parse(text).is_ok_and(|pattern| {
        STRANGERS
            .iter()
            .filter(|name| pattern.capture(name).is_some())
            .count()
            > 1
    });
    if wide {
        say(
            "pattern",
            "means almost any name: begin it with a word of its own, as in `faas-code-`",
        );
    }
    if ["+?", "*?", "}?", "??"]
        .iter()
        .any(|lazy| text.contains(lazy))
    {
        say(
            "pattern",
            "has a repetition with `?` after it, which takes as much as it can here: each takes as \
             little as it can without",
        );
    }
    for placeholder in ["<name>", "<version>"] {
        if !entry
            .image
            .as_ref()
            .is_some_and(|image| image.contains(placeholder))
        {
            say(
                "image",
                &format!("has no {placeholder}: what the pattern finds for it is lost"),
            );
        }
    }
    if entry.pool.is_some() {
        say(
            "pool",
            "is not filled: a dynamic entry has many images; give one an entry of its own",
        );
    }
}

/// Warns about limits that are not 2 to 5 times the request.
fn limits(said: &EntryResources, say: &mut impl FnMut(&'static str, &str)) {
    let odd = |request: u32, limit: u32| {
        request > 0
            && !(2 * u64::from(request)..=5 * u64::from(request)).contains(&u64::from(limit))
    };
    let advice = |what: &str, limit: &dyn fmt::Display, request: &dyn fmt::Display| {
        format!("{what} of {limit} is best 2 to 5 times what is requested, which is {request}")
    };
    if let (Some(request), Some(limit)) = (&said.cpu, &said.cpu_limit)
        && odd(request.value().0, limit.value().0)
    {
        say("resources", &advice("cpuLimit", limit, request));
    }
    if let (Some(request), Some(limit)) = (&said.memory, &said.memory_limit)
        && odd(request.value().0, limit.value().0)
    {
        say("resources", &advice("memoryLimit", limit, request));
    }
}

fn pool(entry: &Entry, say: &mut impl FnMut(&'static str, &str)) {
    let Some(pool) = &entry.pool else {
        return;
    };
    for (field, command) in [
        ("pool.warmupCmd", &pool.warmup_cmd),
        ("pool.startupCmd", &pool.startup_cmd),
    ] {
        if let Some(advice) = command.as_ref().and_then(Command::advice) {
            say(field, &advice);
        }
    }
    let template = entry.resources.clone().unwrap_or_default();
    let standard = crate::resources::Resources::default();
    let cpu = template.most_cpu().unwrap_or(standard.cpu);
    let memory = template.most_memory().unwrap_or(standard.memory);
    let Some(own) = &pool.resources else {
        if pool.size > 0 {
            say(
                "pool",
                "has no resources of its own: idle ones have all of the template's",
            );
        }
        return;
    };
    let above = |own: Option<MilliCpu>, most: MilliCpu| own.is_some_and(|own| own >= most);
    let near_memory = |own: Option<Mib>, most: Mib| own.is_some_and(|own| own >= most);
    if above(own.most_cpu(), cpu) || near_memory(own.most_memory(), memory) {
        say(
            "pool",
            "has resources that are not below the template's: idle ones are best given less",
        );
    }
}
