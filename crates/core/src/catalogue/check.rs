//! Checks of an entry beyond its JSON schema.

use std::collections::BTreeMap;

use super::entry::{Entry, EntryResources};
use super::pool::{Pool, SIZE_MAX};
use super::resolve::fill;
use crate::image::ImageName;
use crate::parking::ParkingLabel;
use crate::resources::Resources;
use crate::sandbox::PARKING_KEY;

/// The longest description, in characters.
const DESCRIPTION_MAX: usize = 1024;

/// The maximum number of arguments.
const ARGS_MAX: usize = 256;

/// The maximum bytes of a list or map of texts, and of a command.
const TEXT_MAX: usize = 64 << 10;

/// The longest user name or directory, in bytes.
const PATH_MAX: usize = 4096;

/// Fields with their problems.
type Found = Vec<(String, String)>;

/// All problems of an entry, except those of its pattern and of other entries.
pub(super) fn entry(entry: &Entry) -> Found {
    let mut found = Found::new();
    let mut say = |field: &str, message: &str| found.push((field.to_owned(), message.to_owned()));
    if entry.is_dynamic() && entry.pattern.is_none() {
        say("pattern", "is missing: `type` is \"dynamic\"");
    }
    origin(&mut say, entry);
    if entry.description.chars().count() > DESCRIPTION_MAX {
        say(
            "description",
            &format!("has more than {DESCRIPTION_MAX} characters"),
        );
    }
    if let Some(args) = &entry.args {
        let bytes: usize = args.iter().map(String::len).sum();
        if args.len() > ARGS_MAX || bytes > TEXT_MAX || args.iter().any(|a| a.contains('\0')) {
            say(
                "args",
                &format!("at most {ARGS_MAX} of them and {TEXT_MAX} bytes, without NUL"),
            );
        }
    }
    texts(&mut say, entry);
    if let Some(network) = &entry.network
        && let Err(error) = network.asked().validate()
    {
        say("network", &error.to_string());
    }
    if let Some(limits) = &entry.resources {
        resources("resources", limits, &mut found);
    }
    if let Some(pool) = &entry.pool {
        sizes(pool, &mut found);
        if let Some(limits) = &pool.resources {
            resources("pool.resources", limits, &mut found);
        }
    }
    found
}

/// The base of its sandboxes: an image or a template.
fn origin(say: &mut impl FnMut(&str, &str), entry: &Entry) {
    if let Some(image) = &entry.image {
        // Any text that a pattern may capture will do.
        let image = if entry.is_dynamic() {
            fill(image, "x", "1")
        } else {
            image.clone()
        };
        if let Err(error) = image.parse::<ImageName>() {
            say("image", &error.to_string());
        }
    }
    if entry.template.is_none() {
        if entry.image.is_none() {
            say("image", "is missing: say an image, or a `template`");
        }
        return;
    }
    if entry.image.is_some() {
        say("template", "cannot be said beside `image`: say one of them");
    }
    if entry.is_dynamic() {
        say("template", "cannot be said where `type` is \"dynamic\"");
    }
    // These are part of the saved template.
    for (field, said) in [
        ("args", entry.args.is_some()),
        ("startCmd", entry.start_cmd.is_some()),
        ("readyCmd", entry.ready_cmd.is_some()),
    ] {
        if said {
            say(field, "cannot be said beside `template`, which has its own");
        }
    }
}

fn texts(say: &mut impl FnMut(&str, &str), entry: &Entry) {
    for (field, map) in [("metadata", &entry.metadata), ("env", &entry.env)] {
        let bytes: usize = map.iter().map(|(key, value)| key.len() + value.len()).sum();
        if bytes > TEXT_MAX {
            say(field, &format!("has more than {TEXT_MAX} bytes"));
        }
    }
    let parking = entry.metadata.get(PARKING_KEY);
    if let Some(Err(error)) = parking.map(|text| text.parse::<ParkingLabel>()) {
        say(&format!("metadata.{PARKING_KEY}"), &error.to_string());
    }
    if let Some(name) = unsettable(&entry.env) {
        say(&format!("env.{name}"), "cannot be set");
    }
    let plain =
        |text: &String| (1..=PATH_MAX).contains(&text.len()) && !text.contains(char::is_control);
    if entry.user.as_ref().is_some_and(|user| !plain(user)) {
        say("user", "is no user's name");
    }
    let absolute = |text: &String| plain(text) && text.starts_with('/');
    if entry.workdir.as_ref().is_some_and(|path| !absolute(path)) {
        say("workdir", "must be an absolute path");
    }
    let good = |text: &String| !text.trim().is_empty() && text.len() <= TEXT_MAX;
    for (field, command) in [
        ("startCmd", &entry.start_cmd),
        ("readyCmd", &entry.ready_cmd),
    ] {
        if command
            .as_ref()
            .is_some_and(|text| !good(text) || text.contains('\0'))
        {
            say(
                field,
                &format!("must be a command of at most {TEXT_MAX} bytes, without NUL"),
            );
        }
    }
}

/// A variable name that no environment can contain.
fn unsettable(env: &BTreeMap<String, String>) -> Option<&str> {
    let bad = |name: &str, value: &str| {
        name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
    };
    let found = env.iter().find(|(name, value)| bad(name, value));
    found.map(|(name, _)| name.as_str())
}

fn resources(field: &str, said: &EntryResources, found: &mut Found) {
    if let (Some(request), Some(limit)) = (&said.cpu, &said.cpu_limit)
        && request.value() > limit.value()
    {
        let message = format!("{limit} is below `cpu`, which is {request}");
        found.push((format!("{field}.cpuLimit"), message));
    }
    if let (Some(request), Some(limit)) = (&said.memory, &said.memory_limit)
        && request.value() > limit.value()
    {
        let message = format!("{limit} is below `memory`, which is {request}");
        found.push((format!("{field}.memoryLimit"), message));
    }
    let standard = Resources::default();
    let most = Resources {
        cpu: said.most_cpu().unwrap_or(standard.cpu),
        memory: said.most_memory().unwrap_or(standard.memory),
        ..standard
    };
    if let Err(error) = most.validate() {
        found.push((field.to_owned(), error.to_string()));
    }
}

fn sizes(pool: &Pool, found: &mut Found) {
    let mut say = |field: &str, message: String| found.push((format!("pool.{field}"), message));
    let counts = [
        ("size", Some(pool.size)),
        ("max", pool.max),
        ("hot", pool.hot),
    ];
    for (field, value) in counts {
        if value.is_some_and(|value| value > SIZE_MAX) {
            say(field, format!("must be at most {SIZE_MAX}"));
        }
    }
    if pool.min_ready.is_some_and(|ready| ready > pool.size) {
        say(
            "minReady",
            format!("must be at most `size`, which is {}", pool.size),
        );
    }
    if pool.max.is_some_and(|max| max < pool.size) {
        say(
            "max",
            format!("must be at least `size`, which is {}", pool.size),
        );
    }
}
